"""Microseconds of one streaming step in each runtime, called from Python, on one core.

    python -m benchmarks.step_runtimes

A step is one input vector of one sequence, and the state of the step before; layers have as many
inputs as neurons. Runtimes that are not installed are left out, with the reason in the file.

Microseconds are CPU time of the process, which may run on one core only: other programs on the
machine count little, and no runtime gains by a second thread.
"""

import argparse
import importlib.metadata
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn

from benchmarks.record import Call, medians, parser, write_record
from thinrnn import (
    RNNStack,
    export_c,
    export_executorch,
    export_litert,
    export_onnx,
    quantize_onnx,
)
from thinrnn.c.compiled import Functions, compile_shared, pointer
from thinrnn.edge.executorch import ExecutorchFile
from thinrnn.edge.litert import LitertFile
from thinrnn.onnx.runtime import OnnxFile

LAYERS: dict[str, type[nn.RNNBase]] = {"LSTM": nn.LSTM, "GRU": nn.GRU}
PACKAGES = ("torch", "onnxruntime", "openvino", "executorch", "ai-edge-litert")


def runtimes(rnn: nn.RNNBase, folder: Path) -> Iterator[tuple[str, Callable[[], Call]]]:
    """Yield the name of each runtime, and a function that prepares one step in it."""
    x = torch.randn(3, 1, rnn.input_size)
    files = {name: folder / f"{name}.onnx" for name in ("float32", "int8")}
    export_onnx(rnn, files["float32"], x, streaming=True)
    quantize_onnx(files["float32"], files["int8"])
    yield "PyTorch", lambda: in_torch(rnn)
    yield "PyTorch, RNNStack", lambda: in_torch(RNNStack.from_rnn(rnn))
    yield "PyTorch int8", lambda: in_torch(torch_int8(rnn))
    yield "ONNX Runtime", lambda: in_onnx(files["float32"], x)
    yield "ONNX Runtime int8", lambda: in_onnx(files["int8"], x)
    yield "OpenVINO", lambda: in_openvino(files["float32"], rnn)
    for name, write, load in (
        ("ExecuTorch", export_executorch, ExecutorchFile),
        ("LiteRT", export_litert, LitertFile),
    ):
        for precision in ("float32", "int8"):
            suffix = "" if precision == "float32" else " int8"

            def prepare(write: Any = write, load: Any = load, precision: Any = precision) -> Call:
                path = folder / "step"
                export = write(rnn, path, x, streaming=True, precision=precision)
                return by_file(load(path), export.inputs.values())

            yield f"{name}{suffix}", prepare
    yield "C", lambda: in_c(rnn, folder / "step.c", x, "float32")
    yield "C, int8 weights", lambda: in_c(rnn, folder / "step8.c", x, "int8")


def torch_int8(rnn: nn.RNNBase) -> nn.Module:
    from torch.ao.quantization import quantize_dynamic

    # a module inside another is replaced, a module itself is not
    model: Any = quantize_dynamic(nn.Sequential(rnn), {type(rnn)}, dtype=torch.qint8)
    return model[0]


def in_torch(model: Any) -> Call:
    model.eval()
    x = torch.randn(1, 1, model.input_size)
    with torch.inference_mode():
        state = model(x)[1]

    def call() -> None:
        nonlocal state
        with torch.inference_mode():
            _, state = model(x, state)

    return call


def in_onnx(path: Path, x: torch.Tensor) -> Call:
    file = OnnxFile(path)
    values = {"input": x[:1].numpy(), **file.first_states(1)}

    def call() -> None:
        found = file(values)
        values.update({name: found[f"{name}.next"] for name in file.states})

    return call


def in_openvino(path: Path, rnn: nn.RNNBase) -> Call:
    import openvino

    model = openvino.Core().read_model(path)
    model.reshape({one.any_name: [1, 1, rnn.hidden_size] for one in model.inputs})
    compiled = openvino.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 1})
    request = compiled.create_infer_request()
    values = [numpy.zeros((1, 1, rnn.hidden_size), numpy.float32) for _ in model.inputs]

    def call() -> None:
        found = request.infer(values)
        values[1:] = [found[place] for place in range(1, len(values))]

    return call


def by_file(file: Any, shapes: Any) -> Call:
    values = [numpy.zeros(shape, numpy.float32) for shape in shapes]

    def call() -> None:
        values[1:] = file(values)[1:]

    return call


def in_c(rnn: nn.RNNBase, path: Path, x: torch.Tensor, precision: Any) -> Call:
    export = export_c(rnn, path, x, precision=precision)
    compile_shared(path, path.with_suffix(".so"), "-O3", "-march=native")
    step = Functions(path.with_suffix(".so"), export.name).step
    sizes = (sum(export.states.values()), rnn.input_size, rnn.hidden_size)
    arrays = [numpy.zeros(size, numpy.float32) for size in sizes]
    pointers = [pointer(array) for array in arrays]

    def call() -> None:
        step(*pointers)
        assert arrays  # they have to outlive the pointers

    return call


def main() -> None:
    made = parser(__doc__, "step-runtimes-cpu.json")
    made.add_argument("--rounds", type=int, default=11)
    made.add_argument("--layers", default=["LSTM 256", "GRU 256", "LSTM 64"], nargs="+")
    options: argparse.Namespace = made.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    times: dict[str, dict[str, float]] = {}
    left_out: dict[str, str] = {}
    for layer in options.layers:
        kind, size = layer.split()
        torch.manual_seed(0)
        rnn = LAYERS[kind](int(size), int(size)).eval()
        with tempfile.TemporaryDirectory() as folder:
            calls: dict[str, Call] = {}
            for name, prepare in runtimes(rnn, Path(folder)):
                try:
                    calls[name] = prepare()
                    calls[name]()
                except Exception as error:
                    calls.pop(name, None)
                    left_out[f"{name}, {layer}"] = " ".join(str(error).split())[:200]
            found = medians(calls, options.rounds, now=time.process_time)
        for name, value in found.items():
            times.setdefault(name, {})[layer] = round(1000 * value, 2)
        print(f"{layer}: { {name: one.get(layer) for name, one in times.items()} }", flush=True)
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    write_record(
        "microseconds of CPU time per streaming step, called from Python",
        options,
        times=times,
        left_out=left_out,
        packages=versions,
    )


if __name__ == "__main__":
    main()
