"""Two small edits that onnx_ir leaves to its callers."""

from collections.abc import Sequence
from typing import Any

from thinrnn.onnx._passes.linear import Array


def constant(graph: Any, name: str, array: Array) -> Any:
    """Return an initializer of a graph, made unless there is one of that name."""
    import numpy
    import onnx_ir

    if name not in graph.initializers:
        tensor = onnx_ir.tensor(numpy.array(array, order="C"), name=name)
        onnx_ir.tape.Tape(graph).initializer(tensor)
    return graph.initializers[name]


def replace(old: Sequence[Any], new: Sequence[Any]) -> None:
    """Replace nodes by others whose last one has the same outputs, in a graph or a loop in it."""
    import onnx_ir

    onnx_ir.convenience.replace_nodes_and_values(
        old[-1].graph, old[-1], old[::-1], new, old[-1].outputs, new[-1].outputs
    )
