"""Names in the graph that say where in the model a weight or an operator is from."""

from typing import Any

from thinrnn.export.watch import Layer

RECURRENT = ("LSTM", "GRU", "RNN")
WEIGHTS = {1: "W", 2: "R", 3: "B"}  # what ONNX calls the inputs of a recurrent operator


def transposed_weights(graph: Any) -> dict[str, str]:
    """Return the names of weights by those of their transposes, before these are computed."""
    return {
        node.outputs[0].name: node.inputs[0].name
        for node in graph
        if node.op_type == "Transpose" and node.inputs[0].is_initializer()
    }


def name_weights_(graph: Any, transposed: dict[str, str], prefix: str) -> None:
    """Give weights the names that they have in the model; a transpose ends in ".T"."""
    for name, value in list(graph.initializers.items()):
        if name in transposed:
            value.name = transposed[name].removeprefix(prefix) + ".T"
        elif name.startswith(prefix):
            value.name = name.removeprefix(prefix)


def name_layers_(graph: Any, layers: list[Layer]) -> None:
    """Give recurrent operators the names of their layers, in the order of the calls."""
    nodes = [node for node in graph if node.op_type in RECURRENT]
    names = [name for layer in layers for name in _operators_of(layer)]
    if len(nodes) != len(names):
        return  # one was computed twice, or not needed
    named = set()
    for node, name in zip(nodes, names, strict=True):
        node.name = name
        for place, kind in WEIGHTS.items():
            weight = node.inputs[place] if place < len(node.inputs) else None
            if weight is not None and weight not in named and weight.is_initializer():
                weight.name = f"{name}.{kind}"
                named.add(weight)


def _operators_of(layer: Layer) -> list[str]:
    projected = layer.output != layer.hidden
    if layer.directions == 2 and projected:
        return [layer.name, f"{layer.name}_reverse"]
    return [layer.name]
