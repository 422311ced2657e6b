"""Pretrained models of others, pruned without training: quality on unheard speech, CPU time.

    python -m benchmarks.pretrained voice_detector
    python -m benchmarks.pretrained speaker_encoder
    python -m benchmarks.pretrained speaker_encoder --speed

The examples in examples/pretrained/ do the work; speech is spoken by espeak-ng. With --speed the
models are not distilled, which changes no size, and only their times are measured.
"""

import argparse
import importlib
import subprocess
import sys
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import write_record

EXAMPLES = Path(__file__).parents[1] / "examples/pretrained"
STEPS = {"voice_detector": 150, "speaker_encoder": 300}
PACKAGES = ("silero-vad", "resemblyzer")
SIZES = {"voice_detector": [0.75, 0.5, 0.33, 0.25], "speaker_encoder": [0.5, 0.25]}


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("model", choices=STEPS)
    arguments.add_argument("--speed", action="store_true", help="measure time, not quality")
    arguments.add_argument("--sizes", type=float, nargs="+")
    arguments.add_argument("--steps", type=int, help="of distillation")
    arguments.add_argument("--scores", nargs="+", help="default: every score")
    arguments.add_argument("--utterances", type=int, default=6, help="of each speaker")
    arguments.add_argument("--out", type=Path, help="default: a file in results/calibration/")
    options = arguments.parse_args()
    options.sizes = options.sizes or SIZES[options.model]
    options.steps = STEPS[options.model] if options.steps is None else options.steps
    options.steps = 0 if options.speed else options.steps
    name = options.model.replace("_", "-") + ("-speed-cpu" if options.speed else "")
    options.out = options.out or Path(f"results/calibration/{name}.json")
    sys.path.insert(0, str(EXAMPLES))
    example = importlib.import_module(options.model)
    audio = importlib.import_module("audio")
    torch.manual_seed(0)
    speech = subprocess.run(["espeak-ng", "--version"], capture_output=True, text=True).stdout
    original = example.pretrained()
    pitches = getattr(example, "PITCHES", (audio.PITCH,))
    speech_of = audio.speakers(utterances=options.utterances, pitches=pitches)
    calls, one, test = example.material(speech_of)
    is_detector = options.model == "voice_detector"
    test = test if is_detector else [test]
    every = ("magnitude", "activation", "reconstruct")
    every = every if is_detector else (*every, "sequential")
    more = {} if options.speed else {"scores": tuple(options.scores or every)}
    rows: dict[str, dict[str, Any]] = {}
    # all sizes that are timed take turns; what is measured slowly is written size by size
    for sizes in [options.sizes] if options.speed else [[size] for size in options.sizes]:
        started = time.perf_counter()
        models = example.smaller(original, calls, sizes, options.steps, **more)
        seconds = round(time.perf_counter() - started, 1)
        if options.speed:
            found = audio.milliseconds(models, one)
        else:
            found = {name: example.quality(m, original, *test) for name, m in models.items()}
        rows |= {name: row for name, row in found.items() if name not in rows}
        audio.show(found)
        write_record(
            f"the {options.model.replace('_', ' ')} pruned without training",
            options,
            seconds_of_the_last_size=seconds,
            models=rows,
            packages={n: version(n) for n in PACKAGES if find_spec(n.replace("-", "_"))},
            speech=speech,
        )


if __name__ == "__main__":
    main()
