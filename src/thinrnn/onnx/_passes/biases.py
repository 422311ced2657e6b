"""The bias of a wide layer as one more row of its weights.

    x -> MatMul(W) -> Add(b)        becomes        x -> Pad with 1 -> MatMul([W; b])

A runtime adds a bias in a pass of its own over all outputs; in a small language model that takes a
fifteenth of the time of a batch (`benchmarks/small_cuts.py`). ONNX Runtime fuses no such pair for
sequences, which have three dimensions.
"""

from typing import Any

import numpy

from thinrnn.onnx._passes.edit import constant, replace
from thinrnn.onnx._passes.linear import JOINED, ONE_MORE, Linear, find_linear

WIDE = 4  # outputs per input; narrower layers pad as much as they add


def fold_biases_(graph: Any) -> None:
    """Make the biases of wide layers part of their weights in an onnx_ir graph."""
    import onnx_ir

    for node in list(graph):
        layer = find_linear(node) if node.op_type == "MatMul" else None
        if layer is None or not _is_wide(layer):
            continue
        bias = layer.bias.const_value.numpy()
        whole = numpy.concatenate([layer.matrix, bias[None]])
        pads, one, axes = map(numpy.array, ONE_MORE)
        tape = onnx_ir.tape.Tape()
        padded = [
            layer.x,
            constant(graph, "bias.pads", pads),
            constant(graph, "bias.one", one.astype(whole.dtype)),
            constant(graph, "bias.axes", axes),
        ]
        x = tape.op("Pad", padded, {"mode": "constant"})
        weight = constant(graph, f"{layer.weight.name}{JOINED}{layer.bias.name}", whole)
        tape.op("MatMul", [x, weight], name=node.name)
        replace(layer.nodes, tape.nodes)


def _is_wide(layer: Linear) -> bool:
    """Say whether a layer has many outputs and a bias, both read by nothing else."""
    if layer.bias is None or layer.turned:
        return False
    inputs, outputs = layer.weight.shape
    alone = len(layer.weight.uses()) == len(layer.bias.uses()) == 1
    return bool(outputs >= WIDE * inputs and alone)
