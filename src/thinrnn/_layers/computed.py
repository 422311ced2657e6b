"""Weights that something else computes before each call, and from which parameters.

weight norm    weight = weight_g * weight_v / |weight_v|    a hook, or a parametrization
weight drop    weight_hh_l0 = dropout(weight_hh_l0_raw)     a module around an nn.LSTM, or a method

Rows and columns of the computed weight are those of its source, so they are cut there. Weight norm
keeps the lengths of the rows in a parameter of their own. When columns are gated or cut, the
lengths follow, which keeps the weight what it was:

    g' = g |v'| / |v|   so that   g' v' / |v'| = g v' / |v|
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import _WeightNorm
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized
from torch.nn.utils.weight_norm import WeightNorm

RAW = "_raw"


@dataclass(frozen=True)
class Computed:
    """How a layer's weight is computed.

    Attributes:
        source: the parameter of the weight's shape, by its name in the model.
        lengths: under weight norm, the parameter with the lengths of the rows, else empty.
        dim: along which dimension there is one length for each position; -1 if there is one in all.
        refresh: computes the weight anew after a cut.
    """

    source: str
    lengths: str = ""
    dim: int = -1
    refresh: Callable[[], object] = lambda: None


def computed_weights(name: str, module: nn.Module, parent: nn.Module | None) -> dict[str, Computed]:
    """Return how the weights of a module are computed, by their names in the module."""
    prefix = f"{name}." if name else ""
    found = {}
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm):
            weight = prefix + hook.name
            found[hook.name] = Computed(
                f"{weight}_v", f"{weight}_g", hook.dim, partial(hook, module, None)
            )
    if is_parametrized(module):
        parametrizations: Any = module.parametrizations
        for own, parametrization in parametrizations.items():
            if (norm := _weight_norm(parametrization)) is not None:
                weight = f"{prefix}parametrizations.{own}.original"
                found[own] = Computed(f"{weight}1", f"{weight}0", norm.dim)
    for holder, place in ((module, prefix), (parent, prefix[:-1].rpartition(".")[0] + ".")):
        for raw, parameter in () if holder is None else holder._parameters.items():
            own = raw.removesuffix(RAW)
            value = vars(module).get(own)
            if own != raw and parameter is not None and isinstance(value, Tensor):
                found[own] = Computed(
                    (place + raw).lstrip("."), refresh=partial(_refill, module, own, parameter)
                )
    return found


def _refill(module: nn.Module, name: str, raw: Tensor) -> None:
    setattr(module, name, raw.detach().clone())


def _weight_norm(parametrization: nn.Module) -> "_WeightNorm | None":
    plain = isinstance(parametrization, ParametrizationList) and len(parametrization) == 1
    only = parametrization[0] if plain else None  # type: ignore[index]
    return only if isinstance(only, _WeightNorm) else None


def norms_of(model: nn.Module) -> list[Computed]:
    """Return all weights of a model under weight norm."""
    found = [computed_weights(name, module, None) for name, module in model.named_modules()]
    return [one for weights in found for one in weights.values() if one.lengths]


def norm_except(source: Tensor, dim: int) -> Tensor:
    """Return the lengths of the rows of a source."""
    return torch.norm_except_dim(source, 2, dim)


def with_lengths(
    source: Tensor, lengths: Tensor, before: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Return a source that has changed, and its lengths so that the other entries stay.

    `before` is what the rows measured. A row of zeros, which has no direction, becomes one of
    length zero in another.
    """
    now = norm_except(source, dim)
    is_zero = now == 0
    source = torch.where(is_zero, torch.ones_like(source), source)
    return source, lengths * torch.where(before == 0, torch.ones_like(now), now / before)
