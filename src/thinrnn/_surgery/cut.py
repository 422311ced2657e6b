"""Removing neurons: which ones, at which positions of which tensors, and what the modules become.

Everything that makes a model smaller (`compact`, `shrink_`, `load_`) goes through the functions
here, from a plan and the neurons to keep, and nothing else.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from thinrnn._gates.attached import Attached
from thinrnn._layers.base import Layer
from thinrnn._layers.computed import computed_weights
from thinrnn._layers.norms import NormLayer, channels_of
from thinrnn._layers.recurrent import RNNLayer
from thinrnn._layers.registry import layer_of
from thinrnn._surgery.full_width_inputs import NORM, kept_at, kept_in_state, places_of
from thinrnn.errors import PlanError
from thinrnn.group import NormSlice, Slice, State, runs_of
from thinrnn.nn.rnn_cell import ProjectedLSTM
from thinrnn.nn.rnn_stack import RNNStack
from thinrnn.plan import Plan, named_tensors

Keep = dict[str, Tensor]  # group -> neurons to keep, ascending
Positions = dict[str, dict[int, Tensor]]  # parameter -> dimension -> positions to keep
BEST = "; the best is kept, so that the model still runs"


@torch.no_grad()
def neurons_to_keep(
    gated: Attached, is_open: Mapping[str, Tensor], *, round_to: int = 1
) -> tuple[Keep, list[str]]:
    """Return the neurons to keep in each group, and remarks on sizes other than expected."""
    keep: Keep = {}
    ranks: dict[str, Tensor] = {}
    remarks = []
    for name, gate in gated.gates.items():
        gate.check()
        opened = is_open[name].cpu()
        wanted = -(-max(int(opened.sum()), 1) // round_to) * round_to
        if not opened.any():
            remarks.append(f"all {gate.size} neurons of group '{name}' are closed{BEST}")
        if gate.size < min(wanted, gate.full_size):
            remarks.append(
                f"group '{name}' cannot be rounded up to {wanted}: shrink_ has removed its closed "
                f"neurons, and {gate.size} are left"
            )
        rank = gate.log_alpha.detach().cpu().double() + opened * 1e12
        ranks[name] = rank.nan_to_num(neginf=-1e9)
        best = ranks[name].argsort(descending=True, stable=True)
        keep[name] = best[: min(wanted, gate.size)].sort().values
    _fill_empty(gated, keep, ranks, remarks)
    return keep, remarks


def _fill_empty(gated: Attached, keep: Keep, ranks: dict[str, Tensor], remarks: list[str]) -> None:
    """Add the best neuron wherever a tensor would have none left along a dimension.

    A tensor may read just a part of a group: one of two layers that share the input features.
    """
    tensors = named_tensors(gated.model)
    while empty := _first_empty(gated, keep):
        name, dim = empty
        remarks.append(f"all neurons in '{name}', dim {dim}, are closed{BEST}")
        owners = [
            (group.name, neuron)
            for group in gated.plan.groups
            for s in group.slices
            if tensors[s.parameter] is tensors[name] and s.dim == dim
            for neuron in s.index()[1].tolist()
        ]
        group, best = max(owners, key=lambda owner: float(ranks[owner[0]][owner[1]]))
        keep[group] = torch.cat([keep[group], torch.tensor([best])]).sort().values


def _first_empty(gated: Attached, keep: Keep) -> tuple[str, int] | None:
    for name, dims in kept_positions(gated.model, gated.plan, keep).items():
        for dim, left in dims.items():
            if not len(left):
                return name, dim
    return None


def kept_positions(model: nn.Module, plan: Plan, keep: Keep) -> Positions:
    """Return the positions that stay, for each tensor that loses some, under all its names."""
    tensors = named_tensors(model)
    stays: dict[tuple[int, int], Tensor] = {}
    for group in plan.groups:
        gone = torch.ones(group.size, dtype=torch.bool)
        gone[keep[group.name]] = False
        for s in group.slices:
            tensor = tensors[s.parameter]
            everything = torch.ones(tensor.shape[s.dim], dtype=torch.bool)
            mask = stays.setdefault((id(tensor), s.dim), everything)
            positions, neurons = s.index()
            mask[positions[gone[neurons]]] = False
    found: Positions = defaultdict(dict)
    for name, tensor in tensors.items():
        for dim in range(tensor.dim()):
            mask = stays.get((id(tensor), dim), torch.ones(()).bool())
            if not mask.all():
                found[name][dim] = mask.nonzero().flatten()
    return dict(found)


def cut_tensor(tensor: Tensor, positions: dict[int, Tensor]) -> Tensor:
    """Return the tensor with the given positions only, largest reduction first."""
    order = sorted(positions.items(), key=lambda item: len(item[1]) / tensor.shape[item[0]])
    for dim, index in order:
        tensor = tensor.index_select(dim, index.to(tensor.device))
    return tensor


def follow_tensors(model: nn.Module, names: set[str]) -> tuple[nn.Module, dict[str, str]]:
    """Let the modules follow their tensors, of which those named have new shapes.

    Return the model, another object only where the model itself is an RNN whose layers no longer
    have one size, and the parameters that are now called otherwise.
    """
    renamed: dict[str, str] = {}
    owners = {name.rpartition(".")[0] for name in names}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        layer = _follower(name, module, model, names, owners)
        if isinstance(layer, RNNLayer) and not _has_one_size(layer.module):
            old_to_new = RNNStack.parameter_names(layer.module)
            prefix = f"{name}." if name else ""
            renamed |= {prefix + old: prefix + new for old, new in old_to_new.items()}
            model = _exchange(model, layer.module, RNNStack.from_rnn(layer.module))
        elif layer is not None:
            layer.resize()
    return model, renamed


def _follower(
    name: str, module: nn.Module, model: nn.Module, names: set[str], owners: set[str]
) -> Layer | None:
    """Return a module's layer if its parameters, or what they are computed from, have changed."""
    parent = model.get_submodule(name.rpartition(".")[0]) if name else None
    computed = computed_weights(name, module, parent).values()
    new = [one for one in computed if one.source in names]
    for one in new:
        one.refresh()
    return layer_of(name, module, model) if new or name in owners else None


def set_attributes_(model: nn.Module, plan: Plan, keep: Keep) -> None:
    """Give sizes that follow a group's, and are in no tensor, the values of the cut model."""
    lost: dict[str, int] = defaultdict(int)
    for group in plan.groups:
        gone = torch.ones(group.size, dtype=torch.bool)
        gone[keep[group.name]] = False
        for norm in group.norms:
            lost[norm.module] += int(gone[norm.index()[1]].sum())
        for attribute in group.sets:
            module, name = attribute.home(model)
            setattr(module, name, attribute.value(len(keep[group.name])))
    for name, channels in lost.items():
        layer = layer_of(name, model.get_submodule(name), model)
        if isinstance(layer, NormLayer) and layer.module.weight is None:
            layer.resize_to(channels_of(layer.module) - channels)


def restore_rnns(model: nn.Module, names: Iterable[str]) -> tuple[nn.Module, dict[str, str]]:
    """Turn stacks that were RNNs of torch, and have one size again, back into RNNs of torch.

    Return the model and the parameters that are now called otherwise.
    """
    renamed: dict[str, str] = {}
    for name in names:
        module = model.get_submodule(name)
        if isinstance(module, RNNStack) and (rnn := module.to_rnn()) is not None:
            prefix = f"{name}." if name else ""
            new_to_old = RNNStack.parameter_names(rnn)
            renamed |= {prefix + old: prefix + new for new, old in new_to_old.items()}
            model = _exchange(model, module, rnn)
    return model, renamed


def plan_after(plan: Plan, positions: Positions, keep: Keep, renamed: dict[str, str]) -> Plan:
    """Return the plan of the model that is left when `keep` stays."""
    groups = []
    for group in plan.groups:
        number = torch.full((group.size,), -1)
        number[keep[group.name]] = torch.arange(len(keep[group.name]))
        slices = []
        left_in = (n for n in group.norms if (number[n.index()[1]] >= 0).any())
        norms = tuple(_norm_after(norm, plan, keep, number) for norm in left_in)
        for s in group.slices:
            at, neurons = s.index()
            staying = number[neurons] >= 0
            if not staying.any():
                continue
            at, neurons = at[staying], number[neurons[staying]]
            left = positions.get(s.parameter, {}).get(s.dim)
            if left is not None:
                at = torch.searchsorted(left, at)
            name = renamed.get(s.parameter, s.parameter)
            slices.append(Slice.of(name, s.dim, s.role, at, neurons))
        states = tuple(_state_after(state, plan, keep, number) for state in group.states)
        size = len(keep[group.name])
        groups.append(replace(group, size=size, slices=tuple(slices), states=states, norms=norms))
    applied = {renamed.get(name, name): times for name, times in plan.applied.items()}
    return Plan(tuple(groups), plan.refused, plan.outside, applied)


def _norm_after(norm: NormSlice, plan: Plan, keep: Keep, number: Tensor) -> NormSlice:
    """Return the channels of a norm as they are when the neurons of all groups in it are cut."""
    at, neurons = norm.index()
    staying = number[neurons] >= 0
    mask = kept_at((norm.module, NORM), int(at.max()) + 1, places_of(plan), keep)
    left = mask.cumsum(0) - 1
    return replace(norm, runs=runs_of(left[at[staying]], number[neurons[staying]]))


def _state_after(state: State, plan: Plan, keep: Keep, number: Tensor) -> State:
    """Return a state as it is when the neurons of all groups in it are cut."""
    at, neurons = state.index()
    staying = number[neurons] >= 0
    left = kept_in_state(state, plan, keep, int(at.max()) + 1).cumsum(0) - 1
    return replace(state, runs=runs_of(left[at[staying]], number[neurons[staying]]))


def _has_one_size(rnn: nn.RNNBase, cuts: Positions | None = None) -> bool:
    """Whether the class of an RNN can run it after the cuts; a stack's own cells always can."""
    if isinstance(rnn, ProjectedLSTM):
        return True
    shapes: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for name in rnn._flat_weights_names:
        parameter = getattr(rnn, name)
        left = (cuts or {}).get(name, {})
        shape = (len(left[d]) if d in left else n for d, n in enumerate(parameter.shape))
        shapes[name[:9]].add(tuple(shape))
    wide = any(outputs >= cells for outputs, cells in shapes["weight_hr"])  # torch requires fewer
    return len(shapes["weight_hh"]) == 1 and not wide


def _exchange(model: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    if model is old:
        return new
    for module in model.modules():
        for name, child in module._modules.items():
            if child is old:
                module._modules[name] = new
    return model


def need_root_stays(model: nn.Module, cuts: Positions) -> None:
    """Raise where a change in place would have to replace the model object itself."""
    if isinstance(model, nn.RNNBase) and not _has_one_size(model, cuts):
        raise PlanError(
            f"the model is itself an {type(model).__name__} whose layers would get unequal sizes, "
            "so it cannot change in place: put it inside a module of your own."
        )
