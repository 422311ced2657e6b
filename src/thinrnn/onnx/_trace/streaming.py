"""The states that a caller passes from chunk to chunk, and the models that have none."""

from thinrnn.errors import ExportError
from thinrnn.onnx._trace.axes import DynamicAxis
from thinrnn.onnx._trace.layers import LayerCall, LayerCalls


def states_of(calls: LayerCalls, axes: list[DynamicAxis]) -> dict[str, int]:
    """Return the width of each state that the caller passes on."""
    if not calls.layers:
        raise ExportError(
            "streaming: the model calls no nn.LSTM, nn.GRU or nn.RNN. A model of cells takes and "
            "returns its state itself: export it without streaming and give the state in the "
            "example."
        )
    for layer in calls.layers:
        _check_streams(layer)
    if "time" not in {axis.name for axis in axes}:
        raise ExportError(
            "streaming: the model runs only at the length of the example, or its recurrent layers "
            "do not read the time axis of the input."
        )
    if any(axis.name.startswith("time_") for axis in axes):
        raise ExportError(
            "streaming: the model reads sequences of different lengths, and a stream has one: "
            "export without streaming."
        )
    return {
        f"{layer.name}.{kind}": width
        for layer in calls.layers
        for kind, width in layer.state_widths.items()
    }


def _check_streams(layer: LayerCall) -> None:
    if layer.directions > 1 or layer.name.partition("#")[0].endswith("_reverse"):
        raise ExportError(
            f"streaming: '{layer.name}' also reads its input from the end, which a stream "
            "does not have yet: export without streaming."
        )
    if layer.packed:
        raise ExportError(
            f"streaming: '{layer.name}' reads a packed sequence, whose lengths a stream does not "
            "know yet: export without streaming."
        )
    if not layer.from_zeros:
        raise ExportError(
            f"streaming: '{layer.name}' starts from a state that the caller or the model "
            "provides: leave the state out of the example, or export without streaming."
        )
