"""Pretrained models of others, pruned without training: quality on unheard speech, CPU time.

    python -m benchmarks.pretrained voice_detector
    python -m benchmarks.pretrained speaker_encoder
    python -m benchmarks.pretrained speaker_encoder --speed

The examples in examples/pretrained/ do the work; speech is spoken by espeak-ng. With --speed the
models are not distilled, which changes no size, and only their times are measured.
"""

import argparse
import importlib
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import write_record

EXAMPLES = Path(__file__).parents[1] / "examples/pretrained"
STEPS = {"voice_detector": 150, "speaker_encoder": 300}
SIZES = {"voice_detector": [0.75, 0.5, 0.33, 0.25], "speaker_encoder": [0.5, 0.25]}


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("model", choices=STEPS)
    arguments.add_argument("--speed", action="store_true", help="measure time, not quality")
    arguments.add_argument("--sizes", type=float, nargs="+")
    arguments.add_argument("--steps", type=int, help="of distillation")
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
    original = example.pretrained()
    calls, one, test = example.material(audio.speakers(utterances=options.utterances))
    is_detector = options.model == "voice_detector"
    test = test if is_detector else [test]
    every = is_detector and not options.speed
    more = {"scores": ("magnitude", "activation", "reconstruct")} if every else {}
    started = time.perf_counter()
    models = example.smaller(original, calls, options.sizes, options.steps, **more)
    seconds = time.perf_counter() - started
    rows: dict[str, dict[str, Any]]
    if options.speed:
        rows = audio.milliseconds(models, one)
    else:
        rows = {name: example.quality(model, original, *test) for name, model in models.items()}
    audio.show(rows)
    write_record(
        f"the {options.model.replace('_', ' ')} pruned without training",
        options,
        seconds=round(seconds, 1),
        models=rows,
    )


if __name__ == "__main__":
    main()
