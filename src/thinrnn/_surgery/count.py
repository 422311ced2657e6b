"""count: parameters, mult-adds and bytes of a model, by module."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from thinrnn._gates.attach import is_attached
from thinrnn._gates.sizes import NO_PRODUCTS, Sizes
from thinrnn._layers.applications import applications
from thinrnn._model.copying import copy_module
from thinrnn._model.tree import call_arguments
from thinrnn._surgery.compact import compact
from thinrnn._table import table
from thinrnn.plan import Plan, named_tensors


@dataclass(frozen=True)
class ModuleCount:
    """The numbers of one module's own parameters, in a `Count`.

    Attributes:
        name: The module's name in the model.
        kind: The name of its class.
        params: Parameters.
        macs: Mult-adds of a step.
        bytes: Bytes of its parameters.
        applied: How often the example applies its matrices; None without an example.

    Example:
        >>> thinrnn.count(nn.Sequential(nn.Linear(4, 3))).modules[0].name
        '0'
    """

    name: str
    kind: str
    params: int
    macs: int
    bytes: int
    applied: int | None = None


@dataclass(frozen=True)
class Count:
    """The size of a model; `print` shows it as a table.

    Attributes:
        params: Parameters; a tied one counts once.
        weights: Parameters without biases, as the paper counts.
        macs: Mult-adds of a step of the recurrent layer that runs most often: each matrix as often
            as the example applies it, or once without an example. An embedding is looked up, not
            multiplied.
        bytes: Bytes of the parameters.
        modules: The same numbers for each module, as `ModuleCount`.
        example_macs: Mult-adds of the whole call of the example; None without one.

    Example:
        >>> print(thinrnn.count(nn.Linear(4, 3)))
        module   kind    parameters  mult-adds  bytes
        (model)  Linear          15         12     60
        total                    15         12     60
    """

    params: int
    weights: int
    macs: int
    bytes: int
    modules: tuple[ModuleCount, ...]
    example_macs: int | None = None

    def __str__(self) -> str:
        head = ("module", "kind", "parameters", "mult-adds", "bytes")
        rows = [(m.name, m.kind, m.params, m.macs, m.bytes) for m in self.modules]
        rows.append(("total", "", self.params, self.macs, self.bytes))
        cells = [head] + [(a, b, *(f"{n:,}" for n in numbers)) for a, b, *numbers in rows]
        return table(cells, "<<>")


def count(model: nn.Module, example: Any = None) -> Count:
    """Count parameters, mult-adds per step and bytes of a model, in all and by module.

    A tied parameter counts once, under the first module that has it. Without an example,
    parameters called weight count as matrices in modules that thinrnn cannot cut.

    Args:
        model: Any model. One with gates counts as what `compact` would make of it.
        example: What to call the model with (a tensor, or a tuple of positional arguments) to count
            how often each matrix is applied. `find_groups` does the same, and a `Target` counts by
            it.

    Returns:
        A `Count`.

    Example:
        >>> thinrnn.count(nn.LSTM(3, 8), torch.randn(5, 2, 3)).example_macs
        3520
    """
    if is_attached(model):
        model = compact(model)
    applied = _Applied(model, example)
    tensors = named_tensors(model)
    aliases: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, nn.Parameter):
            aliases.setdefault(id(tensor), []).append(name)
    modules = []
    example_macs = 0.0
    multiplied: set[int] = set()  # a tied matrix counts in the first module that multiplies by it
    for name, module in model.named_modules():
        own = {f"{name}.{p}" if name else p: t for p, t in module.named_parameters(recurse=False)}
        own = {p: t for p, t in own.items() if not p.startswith("thinrnn:")}
        if not own:
            continue
        first = [t for p, t in own.items() if aliases[id(t)][0] == p]
        params = sum(t.numel() for t in first)
        size = sum(t.numel() * t.element_size() for t in first)
        macs = 0.0
        if not isinstance(module, NO_PRODUCTS):
            mine = [t for t in own.values() if id(t) not in multiplied]
            multiplied |= {id(t) for t in mine}
            macs = sum(t.numel() * applied.times(aliases[id(t)]) for t in mine)
        example_macs += macs
        kind = type(module).__name__
        per_step = round(macs / applied.steps)
        places = applied.places([alias for t in own.values() for alias in aliases[id(t)]])
        modules.append(ModuleCount(name or "(model)", kind, params, per_step, size, places))
    weights = sum(tensors[names[0]].numel() for names in aliases.values() if not _is_bias(names[0]))
    return Count(
        params=sum(m.params for m in modules),
        weights=weights,
        macs=round(example_macs / applied.steps),
        bytes=sum(m.bytes for m in modules),
        modules=tuple(modules),
        example_macs=None if example is None else round(example_macs),
    )


def _is_bias(name: str) -> bool:
    return name.rpartition(".")[2].startswith("bias")


class _Applied:
    """How often each parameter is applied: in the call of an example, or once without one."""

    def __init__(self, model: nn.Module, example: Any) -> None:
        if example is None:
            found = {e.name: e.times for e in Sizes(model, Plan(())).entries}
            self.multiplied, self.seen, self.steps = found, {}, 1.0
        else:
            seen = applications(copy_module(model).eval(), call_arguments(example))
            self.multiplied, self.steps = seen.multiplied, seen.steps
            self.seen = {**seen.looked_up, **seen.multiplied}

    def times(self, names: list[str]) -> float:
        """Return how often a matrix is applied that has these names."""
        return sum(self.multiplied.get(name, 0.0) for name in names)

    def places(self, names: list[str]) -> int | None:
        """Return how often the example applies the one of these parameters that it uses most."""
        most = max((self.seen.get(name, 0.0) for name in names), default=0.0)
        return round(most) if most else None
