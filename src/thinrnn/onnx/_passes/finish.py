"""The last pass over a graph before it is written. Running it again changes nothing."""

from typing import Any

from thinrnn.onnx._passes.biases import fold_biases_
from thinrnn.onnx._passes.by_step import by_step_


def finish_(model: Any) -> None:
    """Make a graph fast and clean: wide layers rewritten, unused parts removed, names unique."""
    from onnx_ir.passes import common

    fold_biases_(model.graph)
    by_step_(model.graph)
    for one in (common.RemoveUnusedNodesPass, common.RemoveUnusedOpsetsPass, common.NameFixPass):
        one()(model)
