"""What small changes gain in ONNX Runtime, for the shape of `ptb-paper`, on one thread.

    python -m benchmarks.small_cuts

    sizes     as pruned, 218-505-196, and rounded up to multiples of 8 and 16, float32 and 8 bits
    bias      of the output layer as a row of its weights, as `export_onnx` writes it, or added
    binding   one step of a stream in 8 bits by `session.run`, or with inputs and outputs bound once

What is compared takes turns, so that a noisy machine cannot favour one; medians are compared.
Weights are random: they take the same time whatever they are.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy
import torch

from benchmarks.record import Call, medians, parser, write_record
from thinrnn import export_onnx, quantize_onnx
from thinrnn.lab.bench.runtimes import bound_stream
from thinrnn.lab.recipes.language_model.model import LanguageModel, example_tokens
from thinrnn.onnx._passes import biases
from thinrnn.onnx.runtime import OnnxFile

SHAPES = {"10 x 30": (30, 10), "1 x 1": (1, 1)}
Calls = dict[str, Call]


def write(sizes: list[int], words: int, path: Path, *, streaming: bool = False) -> Path:
    """Write a model of these sizes, embedding and layers, and return the file."""
    torch.manual_seed(0)
    model = LanguageModel(words, embedding=sizes[0], hidden=tuple(sizes[1:])).eval()
    return export_onnx(model, path, example_tokens(), streaming=streaming).path


def in_8_bits(path: Path) -> Path:
    return quantize_onnx(path, path.with_suffix(".int8.onnx")).path


def sized(options: argparse.Namespace, folder: Path) -> dict[str, Path]:
    """Return files of all sizes, float32 and 8 bits."""
    files: dict[str, Path] = {}
    for multiple in (1, 8, 16):
        sizes = [-(-size // multiple) * multiple for size in options.sizes]
        name = "as pruned" if multiple == 1 else f"multiples of {multiple}"
        path = write(sizes, options.words, folder / f"{multiple}.onnx")
        files |= {f"{name}, float32": path, f"{name}, 8 bits": in_8_bits(path)}
    return files


def with_biases(options: argparse.Namespace, folder: Path) -> dict[str, Path]:
    """Return files with the bias of the output layer in both ways."""
    files = {"a row": write(options.sizes, options.words, folder / "row.onnx")}
    with patch.object(biases, "WIDE", sys.maxsize):
        files["added"] = write(options.sizes, options.words, folder / "added.onnx")
    return files


def whole(files: dict[str, Path], tokens: numpy.ndarray) -> Calls:
    """Return a call of each file on these tokens."""
    opened = {name: OnnxFile(path) for name, path in files.items()}
    return {name: lambda file=file: file({"tokens": tokens}) for name, file in opened.items()}


def streams(options: argparse.Namespace, folder: Path) -> Calls:
    """Return one step of a stream in both ways."""
    path = in_8_bits(write(options.sizes, options.words, folder / "s.onnx", streaming=True))
    run, bound = OnnxFile(path), OnnxFile(path)
    values = {"tokens": numpy.zeros((1, 1), numpy.int64), **run.first_states(1)}

    def step() -> None:
        found = run(values)
        values.update({name: found[f"{name}.next"] for name in run.states})

    return {"run": step, "bound": bound_stream(bound._session, dict(values), 1)}


def main() -> None:
    arguments = parser(__doc__, "small-cuts-cpu.json")
    arguments.add_argument("--sizes", type=int, nargs="+", default=[218, 505, 196])
    arguments.add_argument("--words", type=int, default=10_000)
    arguments.add_argument("--rounds", type=int, default=60)
    options = arguments.parse_args()
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for what, files in (
            ("sizes", sized(options, folder)),
            ("bias", with_biases(options, folder)),
        ):
            for shape, size in SHAPES.items():
                tokens = numpy.random.default_rng(1).integers(0, options.words, size)
                found[f"{what}, {shape}"] = medians(whole(files, tokens), options.rounds)
        found["binding, 1 x 1"] = medians(streams(options, folder), 10 * options.rounds)
    for case, times in found.items():
        print(case, *(f"{name} {ms:.3f} ms" for name, ms in times.items()), sep="\n  ")
    write_record("what small changes gain in ONNX Runtime", options, milliseconds=found)


if __name__ == "__main__":
    main()
