"""Float32 weights of a graph replaced by 8-bit ones, operator by operator.

LSTM        -> DynamicQuantizeLSTM                            computes in 8 bits
MatMul, Add -> DynamicQuantizeMatMul                          computes in 8 bits
Gather      -> Gather of 8 bits, Cast, Mul                    looks up in 8 bits
of a table made of weights: these behind Cast and Mul         float32 once it is loaded
wide GRU    -> Scan with 8-bit products                       computes in 8 bits
GRU, RNN    -> the same, their weights behind Cast and Mul    float32 once it is loaded

A matrix has one scale, or one for each of its rows. One that two operators share is stored once.

Kept by hand because ONNX Runtime's `quantize_dynamic` leaves GRU, RNN and loops in float32 and
stores a tied matrix twice or wrongly; `benchmarks/quantizers.py` compares the two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

from thinrnn.onnx._passes.edit import constant, replace
from thinrnn.onnx._passes.gru import gru_in_8_bits, is_wide_gru
from thinrnn.onnx._passes.linear import Array, find_linear, is_matrix

SMALLEST = 64  # weights; below that a scale per row costs more than it saves
COMPUTED, LOOKED_UP, STORED, LEFT = "int8", "int8 lookup", "int8 in the file", "float32"
IN_A_TABLE = "part of a table of embeddings; float32 once loaded"
BIAS = "a bias or another vector: small"
NO_KERNEL = "ONNX Runtime has no 8-bit kernel for it; float32 once loaded"
MICROSOFT = "com.microsoft"  # the domain of ONNX Runtime's own operators


@dataclass(frozen=True)
class QuantizedWeight:
    """What became of one weight of a file.

    Attributes:
        name: The name of the weight, from the model where it has one there.
        operator: The ONNX operator that reads it.
        shape: Its shape in the file.
        now: "int8" if the operator computes in 8 bits, "int8 lookup" for a table of embeddings,
            "int8 in the file" if it is float32 once loaded, or "float32".
        why: Why it is not computed in 8 bits.

    Example:
        >>> from tempfile import mkdtemp
        >>> folder = mkdtemp()
        >>> export = thinrnn.export_onnx(nn.GRU(24, 20), f"{folder}/a.onnx", torch.randn(5, 2, 24))
        >>> quantized = thinrnn.quantize_onnx(export.path, f"{folder}/a.int8.onnx")
        >>> {weight.operator: weight.now for weight in quantized.weights}
        {'GRU': 'float32'}
    """

    name: str
    operator: str
    shape: tuple[int, ...]
    now: str
    why: str = ""


def quantize_(model: Any, *, per_row: bool) -> tuple[QuantizedWeight, ...]:
    """Quantize the weights of an onnx_ir model, and return what became of each of them."""
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    weights = GraphWeights(model.graph, per_row)
    for node in list(model.graph.all_nodes()):
        rule = RULES.get(node.op_type)
        if rule is not None and node.domain == "":
            rule(weights, node)
    RemoveUnusedNodesPass()(model)
    weights.note_others()
    model.graph.opset_imports[MICROSOFT] = 1
    return tuple(weights.done)


def quantized(matrices: Array, *, per_row: bool) -> tuple[Array, Array]:
    """Return the 8-bit codes of matrices (..., rows, columns) and their scales.

    These are (..., rows) or (...): one per row or one per matrix.
    """
    axes = (-1,) if per_row else (-2, -1)
    largest = numpy.abs(matrices).max(axes, keepdims=True)
    scale = numpy.maximum(largest / 127, numpy.finfo(numpy.float32).tiny).astype(numpy.float32)
    codes = numpy.clip(numpy.rint(matrices / scale), -127, 127).astype(numpy.int8)
    return codes, scale.squeeze(axes)


class GraphWeights:
    """The weights of a graph while they are replaced."""

    def __init__(self, graph: Any, per_row: bool) -> None:
        self.graph = graph
        self.per_row = per_row
        self.done: list[QuantizedWeight] = []
        self.looked_up = {n.inputs[0].name for n in graph.all_nodes() if n.op_type == "Gather"}
        self._made: set[str] = set()
        self._added = 0

    def note(self, value: Any, operator: str, now: str, why: str = "", **given: Any) -> None:
        """Note what became of a weight."""
        name, shape = given.get("name", value.name), given.get("shape", value.shape)
        one = QuantizedWeight(name, operator, tuple(shape), now, why)
        if one not in self.done:  # an operator may be called several times
            self.done.append(one)

    def note_others(self) -> None:
        """Note the weights that stay as they are."""
        for node in self.graph.all_nodes():
            for value in node.inputs:
                if value is None or not value.is_initializer() or value.name in self._made:
                    continue
                if value.dtype.name == "FLOAT" and len(value.shape):
                    user = value.uses()[0].node.op_type.removeprefix("DynamicQuantize")
                    self.note(value, user, LEFT, _why_left(value))

    def add(self, name: str, array: Array) -> Any:
        """Return a weight in 8 bits or what belongs to it, made unless there is one."""
        self._made.add(name)
        return constant(self.graph, name, array)

    def as_stored(self, value: Any) -> tuple[Any, Any]:
        """Return the codes and the scales of a matrix as it is, the same for all who read it."""
        codes, scale = quantized(value.const_value.numpy(), per_row=self.per_row)
        return self.add(f"{value.name}.int8", codes), self.add(f"{value.name}.scale", scale)

    def before(self, node: Any, operator: str, inputs: list[Any], **attributes: Any) -> Any:
        """Put an operator of one output before a node, and return the output."""
        import onnx_ir

        new = onnx_ir.node(operator, inputs, attributes)
        self._added += 1
        new.outputs[0].name = f"{node.name}.{operator}.{self._added}"  # of its own in loops too
        node.graph.insert_before(node, new)
        return new.outputs[0]

    def float32(self, node: Any, codes: Any, scale: Any) -> Any:
        """Return weights in float32, computed before a node."""
        return self.before(node, "Mul", [self.before(node, "Cast", [codes], to=1), scale])

    def column(self) -> Any:
        """Return the axis along which the scales of rows become a column."""
        return self.add("last_axis", numpy.array([-1]))


def _lstm(weights: GraphWeights, node: Any) -> None:
    inputs = list(node.inputs) + [None] * (8 - len(node.inputs))
    if not _is_large(inputs[1], 3) or not _is_large(inputs[2], 3):
        return
    more = []
    for place in (1, 2):
        value = inputs[place]
        codes, scale = quantized(value.const_value.numpy(), per_row=weights.per_row)
        inputs[place] = weights.add(f"{value.name}.int8", codes.transpose(0, 2, 1))
        more.append(weights.add(f"{value.name}.scale", scale))  # (D,) or (D, 4H)
        more.append(weights.add(f"{value.name}.zero", numpy.zeros(scale.shape, numpy.int8)))
        weights.note(value, "LSTM", COMPUTED)
    attributes = {a.name: a.value for a in node.attributes.values()}
    _replace_by([node], "DynamicQuantizeLSTM", [*inputs, *more], **attributes)


def _linear(weights: GraphWeights, node: Any) -> None:
    if node.op_type == "MatMul" and all(_is_large(value) for value in node.inputs):
        return _made(weights, node)
    layer = find_linear(node)
    if layer is None or layer.matrix.size < SMALLEST:
        return
    name, bias_name = layer.names
    if layer.turned and (node.op_type == "MatMul" or name in weights.looked_up):
        codes, scale = weights.as_stored(layer.weight)
        codes = weights.before(node, "Transpose", [codes], perm=[1, 0])  # runtimes do it once
    else:
        rows = layer.matrix if layer.turned else layer.matrix.T  # (outputs, inputs)
        array, scales = quantized(rows, per_row=weights.per_row)
        codes = weights.add(f"{name}.column_int8", array.T)
        scale = weights.add(f"{name}.column_scale", scales)
    bias = layer.bias
    if layer.joined:
        bias = constant(weights.graph, bias_name, layer.weight.const_value.numpy()[-1])
    weights.note(layer.weight, node.op_type, COMPUTED, name=name, shape=layer.matrix.shape)
    inputs = [layer.x, codes, scale, None, bias]
    _replace_by(layer.nodes, "DynamicQuantizeMatMul", inputs)


def _gather(weights: GraphWeights, node: Any) -> None:
    value = node.inputs[0]
    axis = node.attributes["axis"].value if "axis" in node.attributes else 0
    if not _is_large(value) or axis != 0:
        return
    codes, scale = weights.as_stored(value)
    codes = weights.before(node, "Gather", [codes, node.inputs[1]], axis=0)
    if weights.per_row:
        scale = weights.before(node, "Gather", [scale, node.inputs[1]], axis=0)
        scale = weights.before(node, "Unsqueeze", [scale, weights.column()])
    codes = weights.before(node, "Cast", [codes], to=1)
    weights.note(value, "Gather", LOOKED_UP)
    _replace_by([node], "Mul", [codes, scale], domain="")


def _stored(weights: GraphWeights, node: Any) -> None:
    for place in (1, 2):
        value = node.inputs[place]
        if not _is_large(value, 3):
            continue
        codes, scale = quantized(value.const_value.numpy(), per_row=True)  # it costs nothing here
        stored = weights.add(f"{value.name}.int8", codes)
        factor = weights.add(f"{value.name}.scale", scale[..., None])
        weights.note(value, node.op_type, STORED, NO_KERNEL)
        node.replace_input_with(place, weights.float32(node, stored, factor))


def _gru(weights: GraphWeights, node: Any) -> None:
    if is_wide_gru(node):
        gru_in_8_bits(weights, node)
    else:
        _stored(weights, node)


def _concat(weights: GraphWeights, node: Any) -> None:
    if any((use.node.op_type, use.idx) == ("Gather", 0) for use in node.outputs[0].uses()):
        _made(weights, node)


def _made(weights: GraphWeights, node: Any) -> None:
    """Store in 8 bits the weights that a table is made from; runtimes make it when they load."""
    for place, value in enumerate(node.inputs):
        if not _is_large(value):
            continue
        codes, scale = weights.as_stored(value)
        if weights.per_row:
            scale = weights.before(node, "Unsqueeze", [scale, weights.column()])
        weights.note(value, node.op_type, STORED, IN_A_TABLE)
        node.replace_input_with(place, weights.float32(node, codes, scale))


RULES: dict[str, Callable[[GraphWeights, Any], None]] = {
    "LSTM": _lstm,
    "MatMul": _linear,
    "Gemm": _linear,
    "Gather": _gather,
    "Concat": _concat,
    "GRU": _gru,
    "RNN": _stored,
}


def _replace_by(old: Any, operator: str, inputs: list[Any], **given: Any) -> None:
    """Replace nodes by one operator, of ONNX Runtime's own unless a domain is given."""
    import onnx_ir

    domain, count = given.pop("domain", MICROSOFT), len(old[-1].outputs)
    name = old[0].name
    new = onnx_ir.node(operator, inputs, given, domain=domain, name=name, num_outputs=count)
    replace(old, [new])


def _is_large(value: Any, dimensions: int = 2) -> bool:
    return is_matrix(value, dimensions) and value.const_value.size >= SMALLEST


def _why_left(value: Any) -> str:
    if len(value.shape) == 1 or value.name.endswith(".B"):
        return BIAS
    if value.const_value.size < SMALLEST:
        return f"fewer than {SMALLEST} weights"
    return "no operator with 8-bit weights fits"
