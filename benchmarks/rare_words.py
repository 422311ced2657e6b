"""Time of a language model with rare words in 8 bits, its logits written in several ways.

    python -m benchmarks.rare_words        139-298-139, 8,000 of 10,000 words rare, one thread

    at once          both layers for all steps, then a Concat
    by step          the wider layer and the Concat step by step, as `quantize_onnx` writes it
    one product      all words have long vectors, so one layer makes all logits

The ways take turns, so that a noisy machine cannot favour one; medians are compared. Weights are
random: they take the same time whatever they are.
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
from thinrnn.lab.recipes.language_model.model import LanguageModel, example_tokens
from thinrnn.onnx._passes import by_step
from thinrnn.onnx.runtime import OnnxFile

SHAPES = {"10 x 30": (30, 10), "4 x 30": (30, 4), "1 x 30": (30, 1), "1 x 1": (1, 1)}


def write_ways(options: argparse.Namespace, folder: Path) -> dict[str, Path]:
    """Write the model in all the ways and return the files."""
    files = {}
    for name, rare, wide in (
        ("at once", options.rare, sys.maxsize),
        ("by step", options.rare, 1),
        ("one product", 0, sys.maxsize),
    ):
        torch.manual_seed(0)
        model = LanguageModel(
            options.words,
            embedding=options.embedding,
            hidden=(options.hidden, options.embedding),
            tied=True,
            locked=True,
            rare=rare,
            rare_size=options.rare_size,
        )
        exact = export_onnx(model.eval(), folder / "model.onnx", example_tokens()).path
        with patch.object(by_step, "WIDE", wide):
            files[name] = quantize_onnx(exact, folder / f"{name}.onnx").path
    return files


def make_call(path: Path, tokens: numpy.ndarray) -> Call:
    """Return a call of a file on one thread."""
    file = OnnxFile(path)
    return lambda: file({"tokens": tokens})


def main() -> None:
    arguments = parser(__doc__, "rare-words-cpu.json")
    arguments.add_argument("--embedding", type=int, default=139)
    arguments.add_argument("--hidden", type=int, default=298)
    arguments.add_argument("--words", type=int, default=10_000)
    arguments.add_argument("--rare", type=int, default=8_000)
    arguments.add_argument("--rare-size", type=int, default=25)
    arguments.add_argument("--rounds", type=int, default=40)
    options = arguments.parse_args()
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = write_ways(options, Path(folder))
        for shape, size in SHAPES.items():
            tokens = numpy.random.default_rng(1).integers(0, options.words, size)
            calls = {name: make_call(path, tokens) for name, path in files.items()}
            found[shape] = medians(calls, options.rounds)
    for shape, times in found.items():
        print(f"{shape:<8}", *(f"{name} {ms:.3f} ms" for name, ms in times.items()), sep="  ")
    what = "a language model with rare words in 8 bits, its logits written in several ways"
    write_record(what, options, milliseconds=found)


if __name__ == "__main__":
    main()
