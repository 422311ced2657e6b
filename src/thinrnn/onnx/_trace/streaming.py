"""Which states a caller hands on from chunk to chunk, and which models have no such states."""

from thinrnn.errors import ExportError
from thinrnn.onnx._trace.axes import Axis
from thinrnn.onnx._trace.layers import LayerCall, LayerCalls


def states_of(watch: LayerCalls, axes: list[Axis]) -> dict[str, int]:
    """Return the states that a caller hands on, and their widths."""
    if not watch.layers:
        raise ExportError(
            "streaming: the model calls no nn.LSTM, nn.GRU or nn.RNN; a model of cells takes and "
            "returns its state itself: export it without streaming, its state in the example."
        )
    for layer in watch.layers:
        _check_streams(layer)
    if "time" not in {axis.name for axis in axes}:
        raise ExportError(
            "streaming: the model does not run at another length than the example's, or its "
            "recurrent layers do not see the time axis as it comes in."
        )
    if any(axis.name.startswith("time_") for axis in axes):
        raise ExportError(
            "streaming: the model reads sequences of several lengths; a stream has one: export "
            "without streaming."
        )
    return {
        f"{layer.name}.{kind}": width
        for layer in watch.layers
        for kind, width in layer.state_widths.items()
    }


def _check_streams(layer: LayerCall) -> None:
    if layer.directions > 1 or layer.name.partition("#")[0].endswith("_reverse"):
        raise ExportError(
            f"streaming: '{layer.name}' reads its input from the end as well, and a stream has "
            "none yet: export without streaming."
        )
    if layer.packed:
        raise ExportError(
            f"streaming: '{layer.name}' reads a packed sequence, whose lengths a stream does not "
            "know yet: export without streaming."
        )
    if not layer.from_zeros:
        raise ExportError(
            f"streaming: '{layer.name}' starts from a state that the model is given or makes "
            "itself: give the example without a state, or export without streaming."
        )
