"""Gates on and off a model, in place, and the way to them."""

from typing import Any, get_args

from torch import nn

from thinrnn._gates.attached import Attached
from thinrnn._gates.estimators import Estimator, HardConcrete
from thinrnn._gates.gate import Gate
from thinrnn._gates.readers import Placement
from thinrnn.errors import GateError, PlanError
from thinrnn.plan import Plan


def attach_(
    model: nn.Module,
    plan: Plan,
    gate: Estimator | None = None,
    *,
    placement: Placement = "readers",
) -> nn.Module:
    """Put one gate per neuron of the plan on the model, in place.

    In training, each call of the model draws one sample per gate; in eval, gates have fixed values.
    The gates are part of `model.parameters()` and of `state_dict()`, under names that begin with
    `thinrnn:`. The model is called as before, and its other names stay as they were.

    Args:
        model: Any module with recurrent layers, new or trained.
        plan: The groups to put gates on, from `find_groups`.
        gate: How gates are drawn and read: `HardConcrete()` by default, `Fixed()`, or an
            `Estimator` of your own.
        placement: With "readers" a gate multiplies the weights that read its neuron. With "both"
            it also multiplies the rows of recurrent matrices that produce the neuron, as in the
            paper: W * (z s^T) and U * (s s^T).

    Returns:
        The same model.

    Raises:
        GateError: The model has gates already, is sharded by FSDP, or `placement` is unknown.
        PlanError: The plan has no groups, or does not fit the model.

    Example:
        >>> model, x = nn.LSTM(3, 8, num_layers=2), torch.randn(5, 2, 3)
        >>> _ = thinrnn.attach_(model, thinrnn.find_groups(model, x))
        >>> sorted(thinrnn.gates(model))
        ['input', 'l0']
    """
    if placement not in get_args(Placement):
        raise GateError(f"placement='{placement}': write 'readers' or 'both'.")
    if is_attached(model):
        raise GateError("the model has gates already; call detach_(model) first to start again.")
    if not plan.groups:
        raise PlanError(f"the plan has no group to put gates on:\n{plan}")
    plan = plan.fitted(model)
    estimator = HardConcrete() if gate is None else gate
    model.__dict__["_thinrnn"] = Attached(model, plan, estimator, placement)
    return model


def detach_(model: nn.Module) -> nn.Module:
    """Take the gates off the model, in place; its weights stay as they are.

    Args:
        model: A model with gates, from `attach_`.

    Returns:
        The same model.

    Raises:
        GateError: The model has no gates.

    Example:
        >>> model, x = nn.LSTM(3, 8, num_layers=2), torch.randn(5, 2, 3)
        >>> _ = thinrnn.attach_(model, thinrnn.find_groups(model, x))
        >>> [name for name in thinrnn.detach_(model).state_dict() if "thinrnn" in name]
        []
    """
    attached(model).remove()
    return model


def is_attached(model: nn.Module) -> bool:
    """Return whether the model has gates."""
    return "_thinrnn" in model.__dict__


def attached(model: nn.Module) -> Attached:
    """Return what `attach_` put on the model."""
    if not is_attached(model):
        raise GateError("the model has no gates: call attach_(model, find_groups(model, example)).")
    found: Attached = model.__dict__["_thinrnn"]
    return found


def gates(model: nn.Module) -> dict[str, Gate]:
    """Return the gates of each group, by name, to read them and to set their `log_alpha`.

    Args:
        model: A model with gates, from `attach_`.

    Returns:
        A new dict from the names of the groups to their `Gate`.

    Raises:
        GateError: The model has no gates.

    Example:
        >>> model, x = nn.LSTM(3, 8, num_layers=2), torch.randn(5, 2, 3)
        >>> _ = thinrnn.attach_(model, thinrnn.find_groups(model, x))
        >>> thinrnn.gates(model)["l0"]
        Gate('l0', 8 of 8 open)
    """
    return dict(attached(model).gates)


def param_groups(
    model: nn.Module, *, lr: float, gate_lr: float | None = None, weight_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Return parameter groups for an optimizer: the weights, then the gates.

    Gates never get weight decay, which would pull them towards a half-open state.

    Args:
        model: A model with gates, from `attach_`.
        lr: Learning rate of the weights.
        gate_lr: Learning rate of the gates; `lr` by default. With Adam it should be so large that
            `gate_lr * steps` is 10 or more, with the `steps` of the `Target`.
        weight_decay: Weight decay of the weights.

    Returns:
        Two dicts that every `torch.optim` optimizer takes.

    Raises:
        GateError: The model has no gates.

    Example:
        >>> model, x = nn.LSTM(3, 8, num_layers=2), torch.randn(5, 2, 3)
        >>> _ = thinrnn.attach_(model, thinrnn.find_groups(model, x))
        >>> groups = thinrnn.param_groups(model, lr=1e-3, gate_lr=1e-1, weight_decay=1e-4)
        >>> optimizer = torch.optim.AdamW(groups)
        >>> [group["weight_decay"] for group in optimizer.param_groups]
        [0.0001, 0.0]
    """
    own = [gate.log_alpha for gate in gates(model).values()]
    ids = {id(p) for p in own}
    weights = [p for p in model.parameters() if id(p) not in ids and p.requires_grad]
    return [
        {"params": weights, "lr": lr, "weight_decay": weight_decay},
        {"params": own, "lr": lr if gate_lr is None else gate_lr, "weight_decay": 0.0},
    ]
