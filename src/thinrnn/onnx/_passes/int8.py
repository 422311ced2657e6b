"""Float32 weights of a graph replaced by 8-bit ones, operator by operator.

LSTM        -> DynamicQuantizeLSTM                            computes in 8 bits
MatMul, Add -> DynamicQuantizeMatMul                          computes in 8 bits
Gather      -> Gather of 8 bits, Cast, Mul                    looks up in 8 bits
of a table made of weights: these behind Cast and Mul         float32 once it is loaded
GRU, RNN    -> the same, their weights behind Cast and Mul    float32 once it is loaded

A matrix has one scale, or one for each of its rows. One that two operators share is stored once.
"""

from collections.abc import Callable
from typing import Any

import numpy

from thinrnn.onnx._passes.biases import bias_of, unfold_biases_
from thinrnn.onnx._passes.by_step import by_step_
from thinrnn.onnx._passes.editor import Array, Editor, Rewritten

SMALLEST = 64  # weights; below that a scale per row costs more than it saves
COMPUTED, LOOKED_UP, STORED, LEFT = "int8", "int8 lookup", "int8 in the file", "float32"
IN_A_TABLE = "part of a table of embeddings; float32 once loaded"
NO_KERNEL = "ONNX Runtime has no 8-bit kernel for it; float32 once loaded"


def rewrite_(graph: Any, *, per_row: bool) -> list[Rewritten]:
    """Quantize the weights of an onnx_ir graph, and return what became of each of them."""
    unfold_biases_(graph)
    editor = Editor(graph, per_row)
    for node in list(graph.all_nodes()):
        rule = RULES.get(node.op_type)
        if rule is not None and node.domain == "":
            rule(editor, node)
    editor.remove_unused()
    left = dict.fromkeys(
        value for node in graph.all_nodes() for value in node.inputs if _is_left(editor, value)
    )
    for value in left:
        user = value.uses()[0].node.op_type.removeprefix("DynamicQuantize")
        editor.note(value, user, LEFT, _why_left(value))
    by_step_(graph)
    return editor.done


def _is_left(editor: Editor, value: Any) -> bool:
    return (
        value is not None
        and value.is_initializer()
        and value.name not in editor.made
        and value.dtype.name == "FLOAT"
        and len(value.shape) > 0
    )


def _why_left(value: Any) -> str:
    if len(value.shape) == 1 or value.name.endswith(".B"):
        return "a bias or another vector: small"
    if _size(value) < SMALLEST:
        return f"fewer than {SMALLEST} weights"
    return "no operator with 8-bit weights fits"


def quantized(matrices: Array, *, per_row: bool) -> tuple[Array, Array]:
    """Return the 8-bit codes of matrices (..., rows, columns) and their scales.

    These are (..., rows) or (...): one per row or one per matrix.
    """
    axes = (-1,) if per_row else (-2, -1)
    largest = numpy.abs(matrices).max(axes, keepdims=True)
    scale = numpy.maximum(largest / 127, numpy.finfo(numpy.float32).tiny).astype(numpy.float32)
    codes = numpy.clip(numpy.rint(matrices / scale), -127, 127).astype(numpy.int8)
    return codes, scale.squeeze(axes)


def _lstm(editor: Editor, node: Any) -> None:
    inputs = list(node.inputs) + [None] * (8 - len(node.inputs))
    if not _is_matrix(inputs[1]) or not _is_matrix(inputs[2]):
        return
    more = []
    for place in (1, 2):
        value = inputs[place]
        codes, scale = quantized(value.const_value.numpy(), per_row=editor.per_row)
        inputs[place] = editor.weight(f"{value.name}.int8", codes.transpose(0, 2, 1))
        more.append(editor.weight(f"{value.name}.scale", scale))  # (D,) or (D, 4H)
        more.append(editor.weight(f"{value.name}.zero", numpy.zeros(scale.shape, numpy.int8)))
        editor.note(value, "LSTM", COMPUTED)
    attributes = {a.name: a.value for a in node.attributes.values()}
    editor.replace(node, node, "DynamicQuantizeLSTM", [*inputs, *more], **attributes)


def _matmul(editor: Editor, node: Any) -> None:
    value = node.inputs[1]
    if _is_table(node.inputs[0]) and _is_table(value):
        return _made(editor, node)
    turned = value.producer() if value is not None else None
    if turned is not None and turned.op_type == "Transpose" and _is_table(turned.inputs[0]):
        source = turned.inputs[0]
        weight, scale = _turned(editor, node, source)
        size = source.shape[0]
    elif _is_table(value):
        source = value
        weight, scale = _columns(editor, value, value.const_value.numpy().T)
        size = value.shape[1]
    else:
        return
    editor.note(source, "MatMul", COMPUTED)
    last, bias = bias_of(node, size)
    editor.replace(node, last, "DynamicQuantizeMatMul", [node.inputs[0], weight, scale, None, bias])


def _gemm(editor: Editor, node: Any) -> None:
    value = node.inputs[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    given = {a.name: a.value for a in node.attributes.values()}
    plain = given.get("alpha", 1.0) == given.get("beta", 1.0) == 1.0 and not given.get("transA", 0)
    turned = bool(given.get("transB", 0))
    if not plain or not _is_table(value):
        return
    size = value.shape[0 if turned else 1]
    if bias is not None and tuple(bias.shape) != (size,):
        return
    if turned and value.name in editor.embeddings:
        weight, scale = _turned(editor, node, value)
    else:
        rows = value.const_value.numpy()
        weight, scale = _columns(editor, value, rows if turned else rows.T)
    editor.note(value, "Gemm", COMPUTED)
    editor.replace(node, node, "DynamicQuantizeMatMul", [node.inputs[0], weight, scale, None, bias])


def _gather(editor: Editor, node: Any) -> None:
    value = node.inputs[0]
    axis = node.attributes["axis"].value if "axis" in node.attributes else 0
    if not _is_table(value) or axis != 0:
        return
    codes, scale = _shared(editor, value)
    found = editor.before(node, "Gather", [codes, node.inputs[1]], axis=0)
    found = editor.before(node, "Cast", [found], to=1)
    if editor.per_row:
        scale = editor.before(node, "Gather", [scale, node.inputs[1]], axis=0)
        last = editor.weight("last_axis", numpy.array([-1]))
        scale = editor.before(node, "Unsqueeze", [scale, last])
    editor.note(value, "Gather", LOOKED_UP)
    _turn_into(node, found, scale)


def _stored(editor: Editor, node: Any) -> None:
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


def _concat(editor: Editor, node: Any) -> None:
    if any((use.node.op_type, use.idx) == ("Gather", 0) for use in node.outputs[0].uses()):
        _made(editor, node)


def _made(editor: Editor, node: Any) -> None:
    """Store in 8 bits the weights of which a table is made, which runtimes do as they load it."""
    for place, value in enumerate(node.inputs):
        if not _is_table(value):
            continue
        codes, scale = _shared(editor, value)
        if editor.per_row:
            last = editor.weight("last_axis", numpy.array([-1]))
            scale = editor.before(node, "Unsqueeze", [scale, last])
        found = editor.before(node, "Cast", [codes], to=1)
        editor.note(value, node.op_type, STORED, IN_A_TABLE)
        node.replace_input_with(place, editor.before(node, "Mul", [found, scale]))


RULES: dict[str, Callable[[Editor, Any], None]] = {
    "LSTM": _lstm,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Gather": _gather,
    "Concat": _concat,
    "GRU": _stored,
    "RNN": _stored,
}


def _shared(editor: Editor, value: Any) -> tuple[Any, Any]:
    """Return the codes and the scales of a matrix as it is, the same for all who read it."""
    codes, scale = quantized(value.const_value.numpy(), per_row=editor.per_row)
    return (
        editor.weight(f"{value.name}.int8", codes),
        editor.weight(f"{value.name}.scale", scale),
    )


def _turned(editor: Editor, node: Any, value: Any) -> tuple[Any, Any]:
    """Return the codes of a matrix (outputs, inputs), turned by an operator, and the scales.

    It may be an embedding too, and both read the same codes; runtimes turn them once.
    """
    codes, scale = _shared(editor, value)
    return editor.before(node, "Transpose", [codes], perm=[1, 0]), scale


def _columns(editor: Editor, value: Any, rows: Array) -> tuple[Any, Any]:
    """Return the codes of a matrix (outputs, inputs) as (inputs, outputs), and the scales."""
    codes, scale = quantized(rows, per_row=editor.per_row)
    return (
        editor.weight(f"{value.name}.column_int8", codes.T),
        editor.weight(f"{value.name}.column_scale", scale),
    )


def _turn_into(node: Any, one: Any, other: Any) -> None:
    """Make a node the product of two values."""
    import onnx_ir

    new = onnx_ir.node("Mul", [one, other], name=node.name)
    old = node.outputs[0]
    new.outputs[0].shape, new.outputs[0].type = old.shape, old.type
    graph = node.graph
    graph.insert_before(node, new)
    onnx_ir.convenience.replace_all_uses_with(old, new.outputs[0], True)
    new.outputs[0].name, old.name = old.name, None
    graph.remove(node, safe=True)


def _is_matrix(value: Any) -> bool:
    return (
        value is not None
        and value.is_initializer()
        and value.dtype.name == "FLOAT"
        and len(value.shape) > 1
        and _size(value) >= SMALLEST
    )


def _is_table(value: Any) -> bool:
    return _is_matrix(value) and len(value.shape) == 2


def _size(value: Any) -> int:
    return int(numpy.prod(tuple(value.shape)))
