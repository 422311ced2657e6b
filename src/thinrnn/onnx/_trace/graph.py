"""From a traced model to an ONNX graph."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn._model.tree import tensors_in
from thinrnn.errors import ExportError
from thinrnn.onnx._passes.highway import expand_highways_
from thinrnn.onnx._passes.names import derived_weights, name_layers_, name_weights_
from thinrnn.onnx._trace.arguments import Arguments
from thinrnn.onnx._trace.layers import LayerCall
from thinrnn.onnx._trace.modules import prepare_
from thinrnn.onnx._trace.operators import OPSET
from thinrnn.onnx._trace.tracer import Tracer
from thinrnn.onnx._trace.translations import kept_translations

MOST_BYTES = 1 << 40  # weights of any size are folded
INSTEAD_OF_LOOPS = (
    "use nn.LSTM, nn.GRU or nn.RNN for the loop, or export a model of one step that takes and "
    "returns its state"
)
TABLES = ("MatMul", "Concat")  # what may make a table of embeddings out of weights


class Traced(nn.Module):
    """The model as torch.onnx sees it: tensors in, tensors out, states last."""

    def __init__(
        self, model: nn.Module, arguments: Arguments, states: int, outputs: Sequence[int]
    ) -> None:
        super().__init__()
        self.model = model
        self._arguments = arguments
        self._states = states
        self._outputs = list(outputs)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(tensors) - self._states
        tracer = Tracer(tensors[count:] if self._states else None)
        prepare_(self.model, tracer)
        with tracer:
            result = self._arguments.call(self.model, tensors[:count])
        found = list(tensors_in(result))
        return (*(found[place] for place in self._outputs), *tracer.last)


def trace(
    traced: Traced,
    tensors: Sequence[Tensor],
    shapes: Sequence[dict[int, str]],
    *,
    input_names: list[str],
    output_names: list[str],
    layers: list[LayerCall],
) -> Any:
    """Return the graph as an onnx_ir.Model; `shapes` names the axes that are free."""
    with quiet(), kept_translations():
        try:
            program = torch.onnx.export(
                traced.eval(),
                tuple(tensors),
                dynamo=True,
                dynamic_shapes=(tuple(shapes),),
                input_names=input_names,
                output_names=output_names,
                opset_version=OPSET,
                optimize=False,
                verbose=False,
            )
        except Exception as error:
            raise ExportError(_explained(error)) from error
        assert program is not None
        graph = program.model.graph
        derived = derived_weights(graph)
        _fold(program.model)
    _check_weights(program.model)
    expand_highways_(graph)
    _forget_sources(program.model)
    name_weights_(graph, derived, prefix="model.")
    name_layers_(graph, layers)
    return program.model


def _fold(model: Any) -> None:
    """Fold what depends on weights alone: gates in ONNX's order, transposed matrices.

    A layer that is called several times is then computed as often, and stored once again.
    """
    from onnx_ir.passes import PassError
    from onnx_ir.passes.common import DeduplicateInitializersPass
    from onnxscript import optimizer

    def should_fold(node: Any) -> bool | None:
        # The transpose of a tied embedding would be stored besides it, and a table that is made of
        # several weights is larger than these; runtimes make both in memory.
        if node.op_type not in ("Transpose", *TABLES):
            return None
        table = node.inputs[0] if node.op_type == "Transpose" else node.outputs[0]
        return False if _is_looked_up(table) else None

    try:
        optimizer.optimize_ir(
            model,
            input_size_limit=MOST_BYTES,
            output_size_limit=MOST_BYTES,
            should_fold=should_fold,
        )
    except PassError as error:
        raise ExportError(
            f"onnxscript cannot fold the weights of the traced graph: {_reason(error)}. A Python "
            f"loop over the steps, which torch unrolls, can be the cause: {INSTEAD_OF_LOOPS}."
        ) from error
    DeduplicateInitializersPass(size_limit=MOST_BYTES)(model)


def _is_looked_up(value: Any) -> bool:
    """Return whether a value is a table of embeddings or part of one."""
    return any(
        (use.node.op_type, use.idx) == ("Gather", 0)
        or (use.node.op_type in TABLES and _is_looked_up(use.node.outputs[0]))
        for use in value.uses()
    )


def _check_weights(model: Any) -> None:
    """Raise if a recurrent operator reads weights that the graph computes."""
    for node in model.graph.all_nodes():
        weights = node.inputs[1:4] if node.op_type in ("LSTM", "GRU", "RNN") else ()
        if any(weight is not None and not weight.is_initializer() for weight in weights):
            raise ExportError(
                f"weights of a recurrent layer (an {node.op_type} in ONNX) are computed from the "
                "model's input; they have to be constant."
            )


def _forget_sources(model: Any) -> None:
    """Remove what the exporter records about source files."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    ClearMetadataAndDocStringPass()(model)
    for value in (*model.graph.inputs, *model.graph.outputs, *model.graph.initializers.values()):
        value.metadata_props.clear()


def _explained(error: Exception) -> str:
    """Return in one sentence why torch could not trace the model."""
    reason = _reason(error)
    if "specializ" in reason or "inferred a static shape" in reason:
        return (
            "the model's code fixes the batch or the time, as a Python loop over the steps does: "
            f"{INSTEAD_OF_LOOPS}. (torch: {reason})"
        )
    return f"torch.export cannot trace the model: {reason}"


def _reason(error: BaseException) -> str:
    """Return what caused an error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:300]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporter's warnings; the file is checked by running it."""
    loggers = [logging.getLogger(name) for name in ("torch", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        nowhere = io.StringIO()
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
