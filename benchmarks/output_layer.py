"""Time of the output layer of a small language model in ONNX Runtime, written in several ways.

    python -m benchmarks.output_layer        215 inputs, 10,000 words, one thread

Much of the work of a small language model is its output layer. The ways take turns, so that a noisy
machine cannot favour one; medians are compared, for a batch of 10 with 30 steps and for one step.
"""

from typing import Any

import numpy
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from benchmarks.record import Call, medians, parser, write_record

OURS = "com.microsoft"
SHAPES = {"10 x 30": (30, 10), "1 x 1": (1, 1)}


def build(nodes: list[Any], weights: dict[str, Any], inputs: int, words: int) -> bytes:
    """Return a model of one layer: x (T, B, inputs) to y (T, B, words)."""
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["time", "batch", inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["time", "batch", words])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(OURS, 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return bytes(made.SerializeToString())


def ways(inputs: int, words: int) -> dict[str, bytes]:
    """Return the layer in all the ways that were tried."""
    random = numpy.random.default_rng(0)
    w = random.normal(0, 0.05, (inputs, words)).astype("float32")
    b = random.normal(0, 0.05, words).astype("float32")
    node = helper.make_node

    def dynamic(codes: Any, scale: Any, zero: dict[str, Any] | None = None) -> bytes:
        layer = node(
            "DynamicQuantizeMatMul", ["x", "w", "s", *(zero or [""]), "b"], ["y"], domain=OURS
        )
        return build([layer], {"w": codes, "s": scale, "b": b, **(zero or {})}, inputs, words)

    def blocks(bits: int, size: int) -> bytes:
        count = -(-inputs // size)
        codes = random.integers(0, 256, (words, count, size * bits // 8)).astype("uint8")
        scales = numpy.full((words, count), 1e-3, "float32")
        sizes = {"K": inputs, "N": words, "bits": bits, "block_size": size, "accuracy_level": 4}
        layer = node("MatMulNBits", ["x", "w", "s", "", "", "b"], ["y"], domain=OURS, **sizes)
        return build([layer], {"w": codes, "s": scales, "b": b}, inputs, words)

    one, codes = numpy.float32(1e-3), random.integers(-127, 128, (inputs, words)).astype("int8")
    shifted = (codes.astype(int) + 128).astype("uint8")
    flat = {"flat": numpy.array([-1, inputs]), "0": numpy.array([0]), "2": numpy.array([2])}
    return {
        "product, then sum": build(
            [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])],
            {"w": w, "b": b},
            inputs,
            words,
        ),
        "bias as a row of the weights": build(
            [node("Pad", ["x", "pads", "one"], ["p"]), node("MatMul", ["p", "w"], ["y"])],
            {
                "w": numpy.concatenate([w, b[None]]),
                "pads": numpy.array([0, 0, 0, 0, 0, 1]),
                "one": numpy.float32(1),
            },
            inputs,
            words,
        ),
        "Gemm": build(
            [
                node("Reshape", ["x", "flat"], ["rows"]),
                node("Gemm", ["rows", "w", "b"], ["z"]),
                node("Shape", ["x"], ["shape"]),
                node("Slice", ["shape", "0", "2", "0"], ["outer"]),
                node("Concat", ["outer", "words"], ["whole"], axis=0),
                node("Reshape", ["z", "whole"], ["y"]),
            ],
            {"w": w, "b": b, **flat, "words": numpy.array([words])},
            inputs,
            words,
        ),
        "int8": dynamic(codes, one),
        "int8, a scale per word": dynamic(codes, numpy.full(words, one)),
        "uint8": dynamic(shifted, one, {"z": numpy.uint8(128)}),
        "MatMulNBits, 8 bits, blocks of 32": blocks(8, 32),
        "MatMulNBits, 8 bits, blocks of 256": blocks(8, 256),
        "MatMulNBits, 4 bits, blocks of 32": blocks(4, 32),
    }


def make_call(model: bytes, x: numpy.ndarray) -> Call:
    """Return a call of a model on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})


def main() -> None:
    arguments = parser(__doc__, "output-layer-cpu.json")
    arguments.add_argument("--inputs", type=int, default=215)
    arguments.add_argument("--words", type=int, default=10_000)
    arguments.add_argument("--rounds", type=int, default=25)
    options = arguments.parse_args()
    models = ways(options.inputs, options.words)
    found: dict[str, dict[str, float]] = {}
    for shape, (steps, batch) in SHAPES.items():
        x = numpy.random.default_rng(1).normal(0, 0.1, (steps, batch, options.inputs))
        x = x.astype("float32")
        calls = {name: make_call(model, x) for name, model in models.items()}
        found[shape] = medians(calls, options.rounds)
    for name in models:
        print(f"{name:<36}", *(f"{found[shape][name]:9.3f} ms" for shape in SHAPES))
    what = "output layer of a small language model in ONNX Runtime, one thread"
    write_record(what, options, milliseconds=found)


if __name__ == "__main__":
    main()
