"""The example with neuralforecast prunes a forecaster by the library's own `fit`."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "forecasting" / "co2_lstm.py"


@pytest.mark.skipif(
    find_spec("neuralforecast") is None,  # not imported here: that takes seconds
    reason="pip install -r examples/forecasting/requirements.txt",
)
@pytest.mark.extended
def test_the_forecaster_gets_smaller_and_still_forecasts(tmp_path: Path) -> None:
    command = [str(EXAMPLE), "--steps", "60", "--hidden", "24", "--seeds", "1"]
    done = subprocess.run(
        [sys.executable, *command, "--out", "found.json"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    models = json.loads((tmp_path / "found.json").read_text())["models"]
    assert models["pruned"]["params"] <= 0.2 * models["dense"]["params"]
    assert models["pruned"]["mean_error_ppm"] < 20  # parts per million, of about 370
