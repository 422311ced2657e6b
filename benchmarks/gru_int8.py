"""A GRU in ONNX Runtime: its float32 kernel beside a loop of 8-bit products, on one thread.

    python -m benchmarks.gru_int8

`quantize_onnx` writes the loop only for layers as wide as those for which it is faster here.
Milliseconds are CPU time of the one thread, so other programs on the machine count little.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy
import torch
from torch import nn

from benchmarks.record import medians, parser, write_record
from thinrnn import export_onnx, quantize_onnx
from thinrnn.onnx._passes import gru
from thinrnn.onnx.runtime import OnnxFile

STEPS = (1, 20)


def calls(width: int, folder: Path) -> dict[str, Callable[[int], Any]]:
    """Return a call of each file, streaming, on a number of steps."""
    torch.manual_seed(0)
    x = torch.randn(4, 1, width)
    paths = {"float32": folder / f"{width}.onnx", "int8": folder / f"{width}.int8.onnx"}
    export_onnx(nn.GRU(width, width), paths["float32"], x, streaming=True)
    with patch.object(gru, "WIDE", 1):
        quantize_onnx(paths["float32"], paths["int8"])
    files = {name: OnnxFile(path) for name, path in paths.items()}
    given = {steps: torch.randn(steps, 1, width).numpy() for steps in STEPS}
    state = numpy.zeros((1, 1, width), numpy.float32)
    return {
        name: lambda steps, file=file: file({"input": given[steps], "l0.h": state})
        for name, file in files.items()
    }


def main() -> None:
    made = parser(__doc__, "gru-int8-cpu.json")
    made.add_argument("--rounds", type=int, default=21)
    made.add_argument("--sizes", type=int, default=[64, 128, 256, 512], nargs="+")
    options: argparse.Namespace = made.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for width in options.sizes:
            both = calls(width, Path(folder))
            apart = {
                name: call(20)["output.0"] for name, call in both.items()
            }  # how far 8 bits are from 32
            difference = float(abs(apart["int8"] - apart["float32"]).max())
            for steps in STEPS:
                now = {name: lambda call=call, n=steps: call(n) for name, call in both.items()}
                found = medians(now, options.rounds, now=time.thread_time)
                row = {name: round(1000 * value, 1) for name, value in found.items()}
                print(f"{width} neurons, {steps} steps: {row} microseconds", flush=True)
                rows.append({"neurons": width, "steps": steps, "difference": difference} | row)
    write_record("microseconds of CPU time per call of a GRU", options, times=rows, wide=gru.WIDE)


if __name__ == "__main__":
    main()
