"""Names in the graph that say where in the model a weight or an operator is from."""

from itertools import chain, count
from typing import Any

from thinrnn.onnx._trace.layers import LayerCall

RECURRENT = ("LSTM", "GRU", "RNN")
PARTS, PART = ("Slice", "Split", "Gather"), "[...]"
WEIGHTS = {1: "W", 2: "R", 3: "B"}  # what ONNX calls the inputs of a recurrent operator


def derived_weights(graph: Any) -> dict[str, str]:
    """Return names for values that are computed from one weight alone, before they are computed.

    A transpose ends in ".T", a part in "[...]".
    """
    names = {name: name for name in graph.initializers}
    for node in graph:
        inputs = [value.name for value in node.inputs if value is not None]
        if node.op_type == "Constant":
            names[node.outputs[0].name] = ""
        elif all(name in names for name in inputs):
            sources = {names[name] for name in inputs} - {""}
            name = _derived(node.op_type, sources.pop()) if len(sources) == 1 else ""
            names.update((value.name, name) for value in node.outputs)
    return {name: source for name, source in names.items() if source}


def name_weights_(graph: Any, derived: dict[str, str], prefix: str) -> None:
    """Give weights the names that they have in the model, or that say what they are made of."""
    for name, value in list(graph.initializers.items()):
        wanted = derived.get(name, name).removeprefix(prefix)
        taken = graph.initializers.keys() - {name}
        names = chain([wanted], (f"{wanted}#{number}" for number in count(2)))
        value.name = next(free for free in names if free not in taken)


def _derived(operator: str, source: str) -> str:
    if operator == "Transpose":
        return source.removesuffix(".T") if source.endswith(".T") else f"{source}.T"
    if operator in PARTS and not source.endswith(PART):
        return source + PART
    return source


def name_layers_(graph: Any, layers: list[LayerCall]) -> None:
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


def _operators_of(layer: LayerCall) -> list[str]:
    projected = layer.output != layer.hidden
    if layer.directions == 2 and projected:
        return [layer.name, f"{layer.name}_reverse"]
    return [layer.name]
