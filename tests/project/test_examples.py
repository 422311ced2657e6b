"""The programs in examples/ run as a user runs them and keep their promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended
ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

QUICK = {"quickstart": ["--quick"]}
DIFFERENCE = r"(?:difference of the outputs:|gated model's by at most) (\S+)"
SIZES = r"^(?:parameters:|mult-adds per step:|weights) +([\d,]+) (?:->)? *([\d,]+)"
LEARNED = {
    "lightning_tagger": (r"right tags: ([\d.]+)%", 95),
    "transformers_classifier": (r"right answers: ([\d.]+)%", 65),
    "bigru_tagger_packed": (r"right tags: ([\d.]+)%", 95),
    "speech_proj_lstm": (r"right frames: ([\d.]+)%", 90),
    "attention_raw_parameter": (r"right answers: ([\d.]+)%", 95),
}


def run_example(path: Path) -> str:
    """Return what the program prints, if it ends well."""
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(path), *QUICK.get(path.stem, [])]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def found(pattern: str, text: str) -> list[float]:
    """Return the numbers that a pattern picks out of a text."""
    match = re.search(pattern, text, re.MULTILINE)
    assert match is not None, f"no {pattern} in:\n{text}"
    return [float(number.rstrip(".").replace(",", "")) for number in match.groups()]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_ends_with_a_smaller_model_of_the_same_outputs(path: Path) -> None:
    printed = run_example(path)
    assert found(DIFFERENCE, printed)[0] < 1e-4
    before, after = found(SIZES, printed)
    assert after < 0.5 * before
    if path.stem in LEARNED:
        pattern, at_least = LEARNED[path.stem]
        assert found(pattern, printed)[0] >= at_least
    if path.stem == "forecaster_input_selection":
        assert "sensors that matter: [2, 5, 7]" in printed
