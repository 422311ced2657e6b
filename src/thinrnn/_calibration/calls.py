"""Example calls as a list, or clear words about what was given instead."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from thinrnn._model.tree import call_arguments, tensors_in
from thinrnn.errors import CalibrationError


def calls_of(data: Iterable[Any]) -> list[Any]:
    """Return the calls in the data.

    Raises:
        CalibrationError: There is none, one is empty, or the data is a single call.
    """
    if isinstance(data, Tensor | Mapping | str) or not isinstance(data, Iterable):
        raise CalibrationError(
            f"data is one {type(data).__name__}: give an iterable of calls, as in [x] for one."
        )
    calls = list(data)
    if not calls:
        raise CalibrationError("there is no calibration batch: give an iterable of one or more.")
    for place, call in enumerate(calls, 1):
        sizes = [tensor.numel() for tensor in tensors_in(call_arguments(call))]
        if sizes and not any(sizes):
            raise CalibrationError(f"calibration call {place} is empty: leave it out.")
    return calls
