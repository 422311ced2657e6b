"""Float32 weights of a graph replaced by 8-bit ones, operator by operator.

LSTM        -> DynamicQuantizeLSTM                            computes in 8 bits
MatMul, Add -> DynamicQuantizeMatMul                          computes in 8 bits
Gather      -> Gather of 8 bits, Cast, Mul                    looks up in 8 bits
GRU, RNN    -> the same, their weights behind Cast and Mul    float32 once it is loaded

A matrix has one scale, or one for each of its rows. One that two operators share is stored once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

Array = numpy.ndarray[Any, Any]
SMALLEST = 64  # weights; below that a scale per row costs more than it saves
COMPUTED, LOOKED_UP, STORED, LEFT = "int8", "int8 lookup", "int8 in the file", "float32"
NO_KERNEL = "ONNX Runtime has no 8-bit kernel for it; float32 once loaded"


@dataclass(frozen=True)
class Rewritten:
    """What became of one weight."""

    name: str
    operator: str
    shape: tuple[int, ...]
    now: str  # "int8", "int8 lookup", "int8 in the file" or "float32"
    why: str = ""


def rewrite_(graph: Any, *, per_row: bool) -> list[Rewritten]:
    """Quantize the weights of an onnx_ir graph, and return what became of each of them."""
    editor = _Editor(graph, per_row)
    for node in list(graph):
        rule = RULES.get(node.op_type)
        if rule is not None and node.domain == "":
            rule(editor, node)
    editor.remove_unused()
    for value in list(graph.initializers.values()):
        if value.name not in editor.made and value.dtype.name == "FLOAT" and len(value.shape):
            user = value.uses()[0].node.op_type.removeprefix("DynamicQuantize")
            editor.note(value, user, LEFT, _why_left(value))
    return editor.done


def _why_left(value: Any) -> str:
    if len(value.shape) == 1 or value.name.endswith(".B"):
        return "a bias: small, and added in float32"
    if _size(value) < SMALLEST:
        return f"fewer than {SMALLEST} weights"
    return "no operator with 8-bit weights fits"


class _Editor:
    """A graph that is being changed: 8-bit matrices by the float32 ones that they stand for."""

    def __init__(self, graph: Any, per_row: bool) -> None:
        self.graph = graph
        self.per_row = per_row
        self.done: list[Rewritten] = []
        self.made: set[str] = set()
        self.added = 0

    def note(self, value: Any, operator: str, now: str, why: str = "") -> None:
        self.done.append(Rewritten(value.name, operator, tuple(value.shape), now, why))

    def weight(self, name: str, array: Array) -> Any:
        """Return an initializer, made unless there is one of that name."""
        import onnx_ir

        if name not in self.graph.initializers:
            tensor = onnx_ir.tensor(numpy.ascontiguousarray(array), name=name)
            self.graph.register_initializer(
                onnx_ir.Value(
                    name=name,
                    shape=onnx_ir.Shape(array.shape),
                    type=onnx_ir.TensorType(tensor.dtype),
                    const_value=tensor,
                )
            )
            self.made.add(name)
        return self.graph.initializers[name]

    def before(self, node: Any, operator: str, inputs: list[Any], **attributes: Any) -> Any:
        """Put an operator of one output before a node, and return the output."""
        import onnx_ir

        self.added += 1
        name = f"{node.name}.{operator}.{self.added}"
        new = onnx_ir.node(operator, inputs, attributes, name=name)
        new.outputs[0].name = name
        self.graph.insert_before(node, new)
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
        self.graph.insert_before(last, new)
        onnx_ir.convenience.replace_all_uses_with(last.outputs, new.outputs, True)
        for mine, theirs in zip(new.outputs, last.outputs, strict=True):
            mine.name, theirs.name = theirs.name, None
        for node in dict.fromkeys((last, old)):
            self.graph.remove(node, safe=True)

    def remove_unused(self) -> None:
        """Remove what nothing reads any more: transposes of weights, then weights."""
        for node in list(self.graph):
            if not any(value.uses() or value.is_graph_output() for value in node.outputs):
                self.graph.remove(node, safe=True)
        for name, value in list(self.graph.initializers.items()):
            if not value.uses():
                del self.graph.initializers[name]


def quantized(matrices: Array, *, per_row: bool) -> tuple[Array, Array]:
    """Return the 8-bit codes of matrices (..., rows, columns) and their scales.

    These are (..., rows) or (...): one per row or one per matrix.
    """
    axes = (-1,) if per_row else (-2, -1)
    largest = numpy.abs(matrices).max(axes, keepdims=True)
    scale = numpy.maximum(largest / 127, numpy.finfo(numpy.float32).tiny).astype(numpy.float32)
    codes = numpy.clip(numpy.rint(matrices / scale), -127, 127).astype(numpy.int8)
    return codes, scale.squeeze(axes)


def _lstm(editor: _Editor, node: Any) -> None:
    inputs = list(node.inputs) + [None] * (8 - len(node.inputs))
    more = []
    for place in (1, 2):
        value = inputs[place]
        if not _is_matrix(value):
            return
        codes, scale = quantized(value.const_value.numpy(), per_row=editor.per_row)
        inputs[place] = editor.weight(f"{value.name}.int8", codes.transpose(0, 2, 1))
        more.append(editor.weight(f"{value.name}.scale", scale))  # (D,) or (D, 4H)
        more.append(editor.weight(f"{value.name}.zero", numpy.zeros(scale.shape, numpy.int8)))
        editor.note(value, "LSTM", COMPUTED)
    attributes = {a.name: a.value for a in node.attributes.values()}
    editor.replace(node, node, "DynamicQuantizeLSTM", [*inputs, *more], **attributes)


def _matmul(editor: _Editor, node: Any) -> None:
    value = node.inputs[1]
    turned = value.producer() if value is not None else None
    if turned is not None and turned.op_type == "Transpose" and _is_matrix(turned.inputs[0]):
        # A matrix that is also an embedding: both read the same codes, runtimes turn them once.
        source = turned.inputs[0]
        codes, scale = _shared(editor, source)
        weight = editor.before(node, "Transpose", [codes], perm=[1, 0])
    elif _is_matrix(value) and len(value.shape) == 2:
        source = value
        weight, scale = _columns(editor, value, value.const_value.numpy().T)
    else:
        return
    editor.note(source, "MatMul", COMPUTED)
    last, bias = _added(node)
    editor.replace(node, last, "DynamicQuantizeMatMul", [node.inputs[0], weight, scale, None, bias])


def _gemm(editor: _Editor, node: Any) -> None:
    value = node.inputs[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    given = {a.name: a.value for a in node.attributes.values()}
    plain = given.get("alpha", 1.0) == given.get("beta", 1.0) == 1.0 and not given.get("transA", 0)
    if not plain or not _is_matrix(value) or (bias is not None and len(bias.shape) != 1):
        return
    rows = value.const_value.numpy() if given.get("transB", 0) else value.const_value.numpy().T
    weight, scale = _columns(editor, value, rows)
    editor.note(value, "Gemm", COMPUTED)
    editor.replace(node, node, "DynamicQuantizeMatMul", [node.inputs[0], weight, scale, None, bias])


def _gather(editor: _Editor, node: Any) -> None:
    value = node.inputs[0]
    axis = node.attributes["axis"].value if "axis" in node.attributes else 0
    if not _is_matrix(value) or axis != 0 or len(value.shape) != 2:
        return
    codes, scale = _shared(editor, value)
    found = editor.before(node, "Gather", [codes, node.inputs[1]], axis=0)
    found = editor.before(node, "Cast", [found], to=1)
    if editor.per_row:
        scale = editor.before(node, "Gather", [scale, node.inputs[1]], axis=0)
        last = editor.weight("last_axis", numpy.array([-1]))
        scale = editor.before(node, "Unsqueeze", [scale, last])
    editor.note(value, "Gather", LOOKED_UP)
    _turn_into(editor, node, found, scale)


def _stored(editor: _Editor, node: Any) -> None:
    for place in (1, 2):
        value = node.inputs[place]
        if not _is_matrix(value):
            continue
        codes, scale = quantized(value.const_value.numpy(), per_row=True)  # it costs nothing here
        stored = editor.weight(f"{value.name}.int8", codes)
        factor = editor.weight(f"{value.name}.scale", scale[..., None])
        found = editor.before(node, "Cast", [stored], to=1)
        found = editor.before(node, "Mul", [found, factor])
        editor.note(value, node.op_type, STORED, NO_KERNEL)
        node.replace_input_with(place, found)


RULES: dict[str, Callable[[_Editor, Any], None]] = {
    "LSTM": _lstm,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Gather": _gather,
    "GRU": _stored,
    "RNN": _stored,
}


def _shared(editor: _Editor, value: Any) -> tuple[Any, Any]:
    """Return the codes and the scales of a matrix as it is, the same for all who read it."""
    codes, scale = quantized(value.const_value.numpy(), per_row=editor.per_row)
    return (
        editor.weight(f"{value.name}.int8", codes),
        editor.weight(f"{value.name}.scale", scale),
    )


def _columns(editor: _Editor, value: Any, rows: Array) -> tuple[Any, Any]:
    """Return the codes of a matrix (outputs, inputs) as (inputs, outputs), and the scales."""
    codes, scale = quantized(rows, per_row=editor.per_row)
    return (
        editor.weight(f"{value.name}.int8", codes.T),
        editor.weight(f"{value.name}.scale", scale),
    )


def _turn_into(editor: _Editor, node: Any, one: Any, other: Any) -> None:
    """Make a node the product of two values."""
    import onnx_ir

    new = onnx_ir.node("Mul", [one, other], name=node.name)
    old = node.outputs[0]
    new.outputs[0].shape, new.outputs[0].type = old.shape, old.type
    editor.graph.insert_before(node, new)
    onnx_ir.convenience.replace_all_uses_with(old, new.outputs[0], True)
    new.outputs[0].name, old.name = old.name, None
    editor.graph.remove(node, safe=True)


def _added(node: Any) -> tuple[Any, Any]:
    """Return the Add of a bias behind a product and the bias, if that is what reads it."""
    uses = list(node.outputs[0].uses())
    if len(uses) == 1 and uses[0].node.op_type == "Add" and not node.outputs[0].is_graph_output():
        add = uses[0].node
        bias = add.inputs[1 - uses[0].idx]
        if bias is not None and bias.is_initializer() and len(bias.shape) == 1:
            return add, bias
    return node, None


def _is_matrix(value: Any) -> bool:
    return (
        value is not None
        and value.is_initializer()
        and value.dtype.name == "FLOAT"
        and len(value.shape) > 1
        and _size(value) >= SMALLEST
    )


def _size(value: Any) -> int:
    return int(numpy.prod(tuple(value.shape)))
