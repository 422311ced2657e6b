"""Linear layers in a graph, in every form that the exporter and `fold_biases_` give them.

x -> MatMul(W) -> Add(b)
x -> MatMul(Transpose(W)) -> Add(b)        W is a table of embeddings too
x -> Pad with 1 -> MatMul([W; b])
x -> Gemm(W, b)

By hand: a pattern of onnxscript's rewriter matches one form, and the passes need the parts of all.
"""

from dataclasses import dataclass
from typing import Any

import numpy

Array = numpy.ndarray[Any, Any]
JOINED = " + "  # between the names of a weight and a bias that are one matrix
ONE_MORE = ([0, 1], 1, [-1])  # what Pad gets besides its input: one more feature, which is 1


@dataclass(frozen=True)
class Linear:
    """A linear layer: what it reads, its weight and bias, and the operators that compute it."""

    x: Any
    weight: Any  # (inputs, outputs), or (outputs, inputs) if turned; a joined bias is its last row
    turned: bool
    bias: Any  # a value of the graph; None if there is none, or if it is joined
    joined: bool
    nodes: tuple[Any, ...]  # the product, and the Add if there is one

    @property
    def matrix(self) -> Array:
        """The weight without a joined bias, as the graph has it."""
        weight: Array = self.weight.const_value.numpy()
        return weight[:-1] if self.joined else weight

    @property
    def names(self) -> tuple[str, str]:
        """The names of the weight and of a joined bias."""
        weight, _, bias = self.weight.name.partition(JOINED)
        return (weight, bias) if self.joined and bias else (self.weight.name, f"{weight}.bias")


def find_linear(node: Any) -> Linear | None:
    """Return the linear layer whose product a node is, or None if it is no such product."""
    if node.domain or node.op_type not in ("MatMul", "Gemm"):
        return None
    x, weight = node.inputs[:2]
    if node.op_type == "Gemm":
        given = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
        given |= {name: attribute.value for name, attribute in node.attributes.items()}
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        plain = given["alpha"] == given["beta"] == 1 and not given["transA"]
        layer = Linear(x, weight, bool(given["transB"]), bias, False, (node,))
        if not plain or not is_matrix(weight) or not (bias is None or _is_bias(bias, layer)):
            return None
        return layer
    turned = weight.producer() is not None and weight.producer().op_type == "Transpose"
    weight = weight.producer().inputs[0] if turned else weight
    if not is_matrix(weight):
        return None
    if not turned and _pads_with_one(x.producer()):
        return Linear(x.producer().inputs[0], weight, False, None, True, (node,))
    layer = Linear(x, weight, turned, None, False, (node,))
    product = node.outputs[0]
    if len(product.uses()) == 1 and not product.is_graph_output():
        (use,) = product.uses()
        bias = use.node.inputs[1 - use.idx] if use.node.op_type == "Add" else None
        if _is_bias(bias, layer):
            return Linear(x, weight, turned, bias, False, (node, use.node))
    return layer


def is_matrix(value: Any, dimensions: int = 2) -> bool:
    """Say whether a value is a float32 matrix in the file, or several in one tensor."""
    return (
        value is not None
        and value.is_initializer()
        and value.dtype.name == "FLOAT"
        and len(value.shape) == dimensions
    )


def _is_bias(value: Any, layer: Linear) -> bool:
    return is_matrix(value, 1) and value.shape[0] == layer.weight.shape[0 if layer.turned else 1]


def _pads_with_one(node: Any) -> bool:
    if node is None or node.op_type != "Pad" or len(node.inputs) != 4:
        return False
    given = [value.const_value for value in node.inputs[1:] if value is not None]
    return [one.numpy().tolist() for one in given if one is not None] == list(ONE_MORE)
