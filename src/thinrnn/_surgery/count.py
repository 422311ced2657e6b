"""count: parameters, mult-adds and bytes of a model, by module."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from thinrnn._gates.attach import is_attached
from thinrnn._gates.sizes import NO_PRODUCTS, Sizes
from thinrnn._layers.registry import layer_of
from thinrnn._model.copying import copy_module
from thinrnn._model.isolation import run
from thinrnn._model.tree import call_arguments, tensors_in
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
        macs: Mult-adds of one step.
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
        macs: Mult-adds of one step: every matrix applied once. An embedding is looked up, not
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

    A tied parameter counts once in `params` and `bytes`, under the first module that has it, and as
    mult-adds where it is a matrix. In modules that thinrnn cannot cut, parameters called weight
    count as matrices.

    Args:
        model: Any model. One with gates counts as what `compact` would make of it.
        example: What to call the model with (a tensor, or a tuple of positional arguments) to count
            the mult-adds of the whole call as well.

    Returns:
        A `Count`.

    Example:
        >>> thinrnn.count(nn.LSTM(3, 8), torch.randn(5, 2, 3)).example_macs
        3520
    """
    if is_attached(model):
        model = compact(model)
    matrices = {e.name for e in Sizes(model, Plan(())).entries if e.is_matrix}
    aliases: dict[int, list[str]] = {}
    tensors = named_tensors(model)
    for name, tensor in tensors.items():
        if isinstance(tensor, nn.Parameter):
            aliases.setdefault(id(tensor), []).append(name)
    applied = {} if example is None else _applications(model, example)
    modules = []
    example_macs = 0
    for name, module in model.named_modules():
        own = {f"{name}.{p}" if name else p: t for p, t in module.named_parameters(recurse=False)}
        own = {p: t for p, t in own.items() if not p.startswith("thinrnn:")}
        if not own:
            continue
        first = [t for p, t in own.items() if aliases[id(t)][0] == p]
        macs = sum(t.numel() for t in own.values() if _multiplies(module, t, aliases, matrices))
        params = sum(t.numel() for t in first)
        size = sum(t.numel() * t.element_size() for t in first)
        has_place = macs > 0 or layer_of(name, module) is not None
        # what a parametrization computes is used once for each use of the module that has it
        times = applied.get(name.partition(".parametrizations.")[0]) if has_place else None
        example_macs += macs * (times or 0)
        kind = type(module).__name__
        modules.append(ModuleCount(name or "(model)", kind, params, macs, size, times))
    weights = sum(tensors[names[0]].numel() for names in aliases.values() if not _is_bias(names[0]))
    return Count(
        params=sum(m.params for m in modules),
        weights=weights,
        macs=sum(m.macs for m in modules),
        bytes=sum(m.bytes for m in modules),
        modules=tuple(modules),
        example_macs=example_macs if example is not None else None,
    )


def _is_bias(name: str) -> bool:
    return name.rpartition(".")[2].startswith("bias")


def _multiplies(
    module: nn.Module, tensor: Tensor, aliases: dict[int, list[str]], matrices: set[str]
) -> bool:
    no_products = isinstance(module, NO_PRODUCTS)
    return not no_products and aliases[id(tensor)][0] in matrices and tensor.dim() > 1


def _applications(model: nn.Module, example: Any) -> dict[str, int]:
    """Return how many vectors each module's matrices are applied to in one call."""
    clone = copy_module(model).eval()
    counts: dict[str, int] = defaultdict(int)

    def hook(name: str) -> Any:
        def note(module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
            taken = next(tensors_in((args, kwargs, result)), None)
            vectors = 0 if taken is None or not taken.dim() else _vectors(module, taken, result)
            counts[name] += vectors
            if isinstance(module, nn.MultiheadAttention):  # it uses this one without calling it
                counts[f"{name}.out_proj".lstrip(".")] += vectors

        return note

    for name, module in clone.named_modules():
        module.register_forward_hook(hook(name), with_kwargs=True)
    run(clone, call_arguments(example))
    return counts


def _vectors(module: nn.Module, taken: Tensor, result: Tensor) -> int:
    if isinstance(module, _ConvTransposeNd):
        return taken.numel() // module.in_channels
    if isinstance(module, _ConvNd):
        return result.numel() // module.out_channels
    width = taken.shape[-1] if taken.is_floating_point() else 1  # an id is one vector
    return taken.numel() // width
