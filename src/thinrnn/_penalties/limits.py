"""The limits of a target: what the user writes, as numbers of parameters, mult-adds, milliseconds.

0.25        a fraction of the full size        "2 ms"    a time, where a `Latency` is given
500_000     a number                           [0.5, 0.25, 0.1]    several sizes, to stop at each
"""

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from thinrnn._gates.sizes import Sizes, What
from thinrnn.errors import TargetError

MOST_LIMITS = 2
MILLISECONDS = {"us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3}

Limits = dict[What, float]  # parameters, mult-adds, milliseconds: one of them or two
Size = float | Sequence[float]  # a fraction or a number; or several, to stop at each


def listed(size: Size | None) -> list[float]:
    """Return the sizes on the way, the last one last."""
    if size is None:
        return []
    return [size] if isinstance(size, int | float) else list(size)


def absolute(size: float, full: float) -> float:
    """Return a size in numbers; one up to 1 is a fraction of the full size."""
    return size * full if 0 < size <= 1 else float(size)


def read_limits(
    sizes: Sizes,
    *,
    params: float | None = None,
    macs: float | None = None,
    latency: float | None = None,
) -> tuple[Limits, Limits]:
    """Return the full sizes and the sizes to end with, of whatever is limited."""
    given: dict[What, float | None] = {"params": params, "macs": macs, "latency": latency}
    wanted = {what: size for what, size in given.items() if size is not None}
    if not wanted:
        raise TargetError("give params= or macs= or both: a fraction up to 1, or a number.")
    if len(wanted) > MOST_LIMITS:
        raise TargetError("give two of params=, macs= and latency= at most.")
    one_each = {name: _one_of(size) for name, size in sizes.groups.items()}
    full: Limits = {}
    goal: Limits = {}
    for what, size in wanted.items():
        full[what] = float(sizes.total(sizes.all_present(), what))
        limit = float(size) if what == "latency" else absolute(size, full[what])
        smallest = float(sizes.total(one_each, what))
        if not smallest <= limit:
            raise TargetError(_cannot_be_met(what, size, smallest, full[what]))
        goal[what] = min(limit, full[what])
    return full, goal


def read_milliseconds(text: str) -> float:
    """Return a time such as "2 ms" in milliseconds."""
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*(us|µs|ms|s)\s*", str(text))
    if not found or not float(found[1]) > 0:
        raise TargetError(f"latency={text!r}: write a number and a unit, as in '2 ms' or '350 us'.")
    return float(found[1]) * MILLISECONDS[found[2]]


def _cannot_be_met(what: What, size: float, smallest: float, full: float) -> str:
    if what == "latency":
        return (
            f"latency='{size:g} ms' cannot be met: with one neuron left in each group a call "
            f"still takes about {smallest:.3g} of {full:.3g} ms. Allow more, or gate more groups."
        )
    return (
        f"{what}={size:g} cannot be met: with one neuron left in each group the model still has "
        f"{smallest:,.0f} of {full:,.0f} {what}. Allow more, or gate more groups."
    )


def _one_of(size: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor(0), size).double()
