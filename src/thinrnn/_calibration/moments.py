"""First and second moments of what matrices read, summed over calls."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn._calibration.activations import Reads
from thinrnn._calibration.matrices import Matrix, reads_by_module
from thinrnn._layers.base import Layer
from thinrnn._model.isolation import run
from thinrnn._model.tree import call_arguments
from thinrnn.errors import CalibrationError

ROUNDING = 1e-13  # of a product of means: a covariance below it is a rounding error
Record = Callable[[str, Tensor], None]  # (matrix, what it reads (N, P))


class Moments:
    """E[x] and E[x y'] of two signals of one matrix; usually y is x.

    Sums are in float64: they do not depend on the order of the batches beyond rounding.
    """

    def __init__(self) -> None:
        self.count = 0
        self.sum_x: Tensor | float = 0.0
        self.sum_y: Tensor | float = 0.0
        self.sum_xy: Tensor | float = 0.0

    def add(self, x: Tensor, y: Tensor | None = None) -> None:
        """Add rows (N, P), from the same places in time and batch."""
        x = x.detach().double()
        y = x if y is None else y.detach().double()
        self.count += len(x)
        self.sum_x = self.sum_x + x.sum(0)
        self.sum_y = self.sum_y + y.sum(0)
        self.sum_xy = self.sum_xy + x.T @ y

    def means(self) -> tuple[Tensor, Tensor]:
        assert isinstance(self.sum_x, Tensor) and isinstance(self.sum_y, Tensor)
        return self.sum_x / self.count, self.sum_y / self.count

    def second(self, *, centred: bool) -> Tensor:
        """Return E[x y'], or the covariance (P, P)."""
        assert isinstance(self.sum_xy, Tensor)
        product = self.sum_xy / self.count
        if centred:
            x, y = self.means()
            product = product - torch.outer(x, y)
            product = torch.where(product.abs() > ROUNDING * torch.outer(x, y).abs(), product, 0.0)
        return product

    def __add__(self, other: "Moments") -> "Moments":
        total = Moments()
        total.count = self.count + other.count
        total.sum_x = self.sum_x + other.sum_x
        total.sum_y = self.sum_y + other.sum_y
        total.sum_xy = self.sum_xy + other.sum_xy
        return total


@contextmanager
def recorded(model: nn.Module, matrices: dict[str, Matrix], record: Record) -> Iterator[None]:
    """Inside `with`, hand to `record` what the matrices read in each call of the model."""
    handles = []
    for name, (layer, reads, names) in reads_by_module(model, matrices).items():

        def see(
            module: nn.Module,
            args: Any,
            kwargs: Any,
            layer: Layer = layer,
            reads: Reads = reads,
            names: dict[str, str] = names,
        ) -> None:
            left = set(names)
            for parameter, values in reads(layer, args, kwargs):
                if parameter in names:
                    record(names[parameter], values)
                    left.discard(parameter)
                    if not left:  # what comes after need not be computed
                        break

        module = model.get_submodule(name)
        handles.append(module.register_forward_pre_hook(see, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def collect(
    model: nn.Module, matrices: dict[str, Matrix], calls: Iterable[Any], *, first: int = 0
) -> dict[str, Moments]:
    """Return the moments of what each matrix reads over the calls; messages count from `first`.

    Raises:
        CalibrationError: The model does not run on a call, or what a matrix reads is not finite.
    """
    found: dict[str, Moments] = {}

    def record(name: str, values: Tensor) -> None:
        if len(values):
            found.setdefault(name, Moments()).add(values)

    with recorded(model, matrices, record):
        for place, call in enumerate(calls, first + 1):
            try:
                run(model, call_arguments(call))
            except Exception as error:
                raise CalibrationError(
                    f"the model does not run on calibration call {place}: "
                    f"{type(error).__name__}: {error}"
                ) from error
            for name, moments in found.items():
                if not bool(moments.means()[0].isfinite().all()):
                    raise CalibrationError(
                        f"the model reads numbers that are not finite at '{name}' in calibration "
                        f"call {place}: look for NaN or infinity in the data or in the weights."
                    )
    return found


def rows_read(model: nn.Module, matrices: dict[str, Matrix], call: Any) -> dict[str, Tensor]:
    """Return the rows (N, P) that each of some matrices reads in a call."""
    rows: dict[str, list[Tensor]] = {name: [] for name in matrices}
    with recorded(model, matrices, lambda name, values: rows[name].append(values)):
        run(model, call_arguments(call))
    return {name: torch.cat(values) for name, values in rows.items()}
