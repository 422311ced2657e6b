"""A language model in each runtime, as something that is called with a batch and a length.

eager       PyTorch as it is
compiled    torch.compile with weights frozen, one graph per shape
onnx        ONNX Runtime, float32
int8        ONNX Runtime, the file of `quantize_onnx`
best        the same, the best ten words of the last step instead of all logits

The state of one call goes into the next, so that calls of one step are a stream.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from thinrnn.timing import Call

RUNTIMES = ("eager", "compiled", "onnx", "int8", "best")
FILES = {"onnx": "model.onnx", "int8": "model.int8.onnx", "best": "model.int8.best.onnx"}
BEST = 10  # words

Prepare = Callable[[int, int], Call]  # batch and steps; returns what is timed


def prepare(runtime: str, folder: Path, threads: int) -> Prepare:
    """Return a model of a folder, ready to be called at any shape."""
    if runtime in FILES:
        return _in_onnx(folder / FILES[runtime], threads)
    return _in_torch(folder, threads, compiled=runtime == "compiled")


def _in_torch(folder: Path, threads: int, *, compiled: bool) -> Prepare:
    import torch

    from thinrnn.lab.recipes.language_model.load import load_model

    torch.set_num_threads(threads)
    loaded = load_model(folder)
    model: Any = loaded.model

    def at(batch: int, steps: int) -> Call:
        tokens = loaded.example(batch, steps)
        called = compile_model(model) if compiled else model
        with torch.inference_mode():
            state = model(tokens)[1]  # not None: a graph for no state is never timed

        def call() -> Any:
            nonlocal state
            with torch.inference_mode():
                logits, state = called(tokens, state)
            return logits

        return call

    return at


def compile_model(model: Any) -> Any:
    """Return a model compiled as a whole: recurrent layers too, weights as constants."""
    import torch
    import torch._dynamo
    import torch._inductor.config

    torch._dynamo.config.allow_rnn = True
    torch._inductor.config.freezing = True
    return torch.compile(model, fullgraph=True, dynamic=False)


def _in_onnx(path: Path, threads: int) -> Prepare:
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    outputs = [value.name for value in session.get_outputs()]
    widths = {v.name: v.shape[2] for v in session.get_inputs() if f"{v.name}.next" in outputs}
    carried = [(outputs.index(f"{name}.next"), name) for name in widths]

    def at(batch: int, steps: int) -> Call:
        values = {name: numpy.zeros((1, batch, w), numpy.float32) for name, w in widths.items()}
        values["tokens"] = numpy.zeros((steps, batch), numpy.int64)
        if steps == 1:
            return bound_stream(session, values, batch)

        def call() -> Any:
            found = session.run(None, values)
            for place, name in carried:
                values[name] = found[place]
            return found[0]

        return call

    return at


def bound_stream(session: Any, values: dict[str, Any], batch: int) -> Call:
    """Return one step of a stream whose inputs and outputs stay where they are.

    States have two places each and go to and fro between them: no call allocates or looks anything
    up, which matters where a step takes a fraction of a millisecond.
    """
    import numpy
    from onnxruntime import OrtValue

    at = OrtValue.ortvalue_from_numpy  # the same memory, not a copy
    states = [name for name in values if name != "tokens"]
    here, there = ({name: at(values[name].copy()) for name in states} for _ in range(2))
    sizes = {"time": 1, "batch": batch}
    outputs = {
        value.name: numpy.zeros(
            [sizes.get(size, size) for size in value.shape],
            numpy.int64 if value.type == "tensor(int64)" else numpy.float32,
        )
        for value in session.get_outputs()
        if value.name.removesuffix(".next") not in states
    }
    tokens, bound = at(values["tokens"]), {name: at(place) for name, place in outputs.items()}
    bindings = []
    for before, after in ((here, there), (there, here)):
        binding = session.io_binding()
        binding.bind_ortvalue_input("tokens", tokens)
        for name, place in bound.items():
            binding.bind_ortvalue_output(name, place)
        for name in states:
            binding.bind_ortvalue_input(name, before[name])
            binding.bind_ortvalue_output(f"{name}.next", after[name])
        bindings.append(binding)
    first = next(iter(outputs.values()))
    done = 0

    def call() -> Any:
        nonlocal done
        session.run_with_iobinding(bindings[done % 2])
        done += 1
        return first

    return call
