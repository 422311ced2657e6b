"""A graph while its weights are replaced."""

from dataclasses import dataclass
from typing import Any

import numpy

Array = numpy.ndarray[Any, Any]


@dataclass(frozen=True)
class Rewritten:
    """What became of one weight."""

    name: str
    operator: str
    shape: tuple[int, ...]
    now: str  # "int8", "int8 lookup", "int8 in the file" or "float32"
    why: str = ""


def constant(graph: Any, name: str, array: Array) -> Any:
    """Return an initializer of a graph, made unless there is one of that name."""
    import onnx_ir

    if name not in graph.initializers:
        tensor = onnx_ir.tensor(numpy.array(array, order="C"), name=name)
        graph.register_initializer(
            onnx_ir.Value(
                name=name,
                shape=onnx_ir.Shape(array.shape),
                type=onnx_ir.TensorType(tensor.dtype),
                const_value=tensor,
            )
        )
    return graph.initializers[name]


def replace_chain_(graph: Any, new: list[Any], *, instead_of: list[Any]) -> None:
    """Replace a chain of nodes by another whose last output is the same."""
    import onnx_ir

    mine, theirs = new[-1].outputs[0], instead_of[-1].outputs[0]
    mine.shape, mine.type = theirs.shape, theirs.type
    graph.insert_before(instead_of[-1], new)
    onnx_ir.convenience.replace_all_uses_with(theirs, mine, True)
    mine.name, theirs.name = theirs.name, None
    unread = [v for node in instead_of for v in node.inputs if v is not None]
    for node in reversed(instead_of):
        graph.remove(node, safe=True)
    for value in unread:
        if value.is_initializer() and not value.uses():
            graph.initializers.pop(value.name, None)


class Editor:
    """A graph that is being changed; nodes may also be in the body of a loop."""

    def __init__(self, graph: Any, per_row: bool) -> None:
        self.graph = graph
        self.per_row = per_row
        self.done: list[Rewritten] = []
        self.made: set[str] = set()
        self.added = 0
        self.embeddings = {n.inputs[0].name for n in graph.all_nodes() if n.op_type == "Gather"}

    def note(self, value: Any, operator: str, now: str, why: str = "") -> None:
        one = Rewritten(value.name, operator, tuple(value.shape), now, why)
        if one not in self.done:  # an operator may be called several times
            self.done.append(one)

    def weight(self, name: str, array: Array) -> Any:
        """Return a weight in 8 bits or what belongs to it, made unless there is one."""
        if name not in self.graph.initializers:
            self.made.add(name)
        return constant(self.graph, name, array)

    def before(self, node: Any, operator: str, inputs: list[Any], **attributes: Any) -> Any:
        """Put an operator of one output before a node, and return the output."""
        import onnx_ir

        self.added += 1
        name = f"{node.name}.{operator}.{self.added}"
        new = onnx_ir.node(operator, inputs, attributes, name=name)
        new.outputs[0].name = name
        node.graph.insert_before(node, new)
        return new.outputs[0]

    def replace(
        self, old: Any, last: Any, operator: str, inputs: list[Any], **attributes: Any
    ) -> None:
        """Put an operator of onnxruntime's own in the place of `old`, giving what `last` gives."""
        import onnx_ir

        new = onnx_ir.node(
            operator,
            inputs,
            attributes,
            domain="com.microsoft",
            name=old.name,
            num_outputs=len(last.outputs),
        )
        for mine, theirs in zip(new.outputs, last.outputs, strict=True):
            mine.shape, mine.type = theirs.shape, theirs.type
        graph = last.graph
        graph.insert_before(last, new)
        onnx_ir.convenience.replace_all_uses_with(last.outputs, new.outputs, True)
        for mine, theirs in zip(new.outputs, last.outputs, strict=True):
            mine.name, theirs.name = theirs.name, None
        for node in dict.fromkeys((last, old)):
            graph.remove(node, safe=True)

    def remove_unused(self) -> None:
        """Remove what nothing reads any more: transposes of weights, then weights."""
        for node in list(self.graph):
            if not any(value.uses() or value.is_graph_output() for value in node.outputs):
                self.graph.remove(node, safe=True)
        for name, value in list(self.graph.initializers.items()):
            if not value.uses():
                del self.graph.initializers[name]
