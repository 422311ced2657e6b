"""Models in each runtime, as functions of batch and steps.

eager       PyTorch as it is
compiled    torch.compile with weights frozen, one graph per shape
onnx        ONNX Runtime, float32
int8        ONNX Runtime, the file of `quantize_onnx`
best        the same, with the ten best words of the last step instead of all logits
c           the file of `export_c`, compiled for this machine; sequences of a batch one by one
executorch  the file of `export_executorch`, one step at a time; sequences one by one
litert      the file of `export_litert`, in the same way

The state of a language model goes from one call into the next, so that calls of one step are a
stream.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from thinrnn.timing import Call

RUNTIMES = ("eager", "compiled", "onnx", "int8", "best", "c", "executorch", "litert")
C_FILE = "model.c"
EDGE_FILES = {"executorch": "model.pte", "litert": "model.tflite"}
FILES = {"onnx": "model.onnx", "int8": "model.int8.onnx", "best": "model.int8.best.onnx"}
TOP_K = 10  # words that 'best' returns

Prepare = Callable[[int, int], Call]  # batch and steps; returns what is timed


def prepare(runtime: str, recipe: str, folder: str, threads: int) -> Prepare:
    """Return a model of a folder, ready to be called at any shape."""
    if runtime in FILES:
        return _in_onnx(Path(folder) / FILES[runtime], threads)
    if runtime == "c":
        return _in_c(Path(folder) / C_FILE)
    if runtime in EDGE_FILES:
        return _by_step(runtime, Path(folder) / EDGE_FILES[runtime], threads)
    return _in_torch(recipe, folder, threads, compiled=runtime == "compiled")


def import_libraries(runtime: str, recipe: str) -> None:
    """Import all that the runtime needs before it loads a model."""
    if runtime in FILES:
        import numpy  # noqa: F401
        import onnxruntime  # noqa: F401
    elif runtime == "executorch":
        import executorch.runtime  # noqa: F401
    elif runtime == "litert":
        import ai_edge_litert.interpreter  # noqa: F401
    elif runtime != "c":
        from thinrnn.lab import recipes

        recipes.recipe(recipe)


def _in_torch(recipe: str, folder: str, threads: int, *, compiled: bool) -> Prepare:
    import torch

    from thinrnn.lab import recipes

    torch.set_num_threads(threads)
    loaded = recipes.recipe(recipe).load(Path(folder))
    model: Any = loaded.model

    def at(batch: int, steps: int) -> Call:
        example = loaded.example(batch, steps)
        called = compile_model(model) if compiled else model
        # A language model takes tokens and a state; other models have no state to carry.
        carries = not isinstance(example, tuple)
        arguments: tuple[Any, ...] = (example,) if carries else example
        if carries:
            with torch.inference_mode():
                arguments = (example, model(example)[1])  # the graph for no state is never timed

        def call() -> Any:
            nonlocal arguments
            with torch.inference_mode():
                outputs = called(*arguments)
            if carries:
                arguments = (example, outputs[1])
            return outputs[0]

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
    """Return one step of a stream, with inputs and outputs in fixed buffers.

    Each state has two buffers that swap roles from call to call, so that no call allocates or looks
    anything up. That matters where a step takes a fraction of a millisecond.
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


def _in_c(path: Path) -> Prepare:
    import json

    import numpy

    from thinrnn.c.compiled import Functions, pointer

    about = json.loads(path.with_suffix(".json").read_text())
    functions = Functions(path.with_suffix(".so"), about["name"])
    (words,) = about["outputs"].values()

    def at(batch: int, steps: int) -> Call:
        states = numpy.zeros((batch, sum(about["states"].values())), numpy.float32)
        tokens = numpy.zeros((steps, batch), numpy.int32)
        logits = numpy.zeros((steps, batch, words), numpy.float32)
        calls = [
            tuple(map(pointer, (states[b], tokens[t, b:], logits[t, b])))
            for b in range(batch)
            for t in range(steps)
        ]

        def call() -> Any:
            for pointers in calls:
                functions.step(*pointers)
            return logits

        return call

    return at


def _by_step(runtime: str, path: Path, threads: int) -> Prepare:
    import json

    import numpy

    if runtime == "executorch":
        import torch

        from thinrnn.edge.executorch import ExecutorchFile

        torch.set_num_threads(threads)
        file: Any = ExecutorchFile(path)
    else:
        from thinrnn.edge.litert import LitertFile

        file = LitertFile(path, threads=threads)
    shapes = json.loads(path.with_suffix(".json").read_text())

    def at(batch: int, steps: int) -> Call:
        token = numpy.zeros((1, 1), numpy.int64)
        streams = [[numpy.zeros(shape, numpy.float32) for shape in shapes] for _ in range(batch)]

        def call() -> Any:
            for stream in streams:
                for _ in range(steps):
                    logits, *stream[:] = file([token, *stream])
            return logits

        return call

    return at
