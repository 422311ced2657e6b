"""Gates under DistributedDataParallel: one sample for all ranks, and gradients that follow.

DistributedDataParallel looks at the parameters once, when it is built. Gates come later, shrink and
freeze, so its reducer is built again in the next forward. All ranks get there in the same step,
because gates are equal on all of them: rank 0 hands out the first values and all noise.
"""

from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from thinrnn.errors import GateError

# gates -> the wrapper that called them last, and which of their changes it has followed
_FOLLOWED: WeakKeyDictionary[object, tuple[ref[nn.Module], int]] = WeakKeyDictionary()


def is_on() -> bool:
    """Whether this process belongs to a group."""
    return distributed.is_available() and distributed.is_initialized()


def has_others() -> bool:
    """Whether several processes train."""
    return is_on() and distributed.get_world_size() > 1


def wrapper_now() -> Any:
    """Return the DistributedDataParallel whose forward is running, if any."""
    if not is_on():
        return None
    return DistributedDataParallel._get_active_ddp_module()


def follow_(wrapper: Any, gates: object, changes: int, tensors: Iterable[Tensor]) -> None:
    """Make the wrapper reduce the parameters that learn now, if they have changed.

    Args:
        wrapper: The DistributedDataParallel whose forward is running.
        gates: What was attached to its model.
        changes: How often parameters were added, cut, frozen or released so far.
        tensors: The parameters of the gates, which rank 0 hands out.

    Raises:
        GateError: The wrapper casts parameters itself.
    """
    last, seen = _FOLLOWED.get(gates, (None, -1))
    if last is not None and last() is wrapper and seen == changes:
        return
    if getattr(wrapper, "mixed_precision", None) is not None:
        raise GateError(
            "DistributedDataParallel(mixed_precision=...) keeps copies of the parameters, which "
            "cannot follow when neurons are removed: use torch.autocast."
        )
    for tensor in tensors:
        hand_out_(tensor, wrapper)
    # unpickling is torch's own way to build a reducer for an existing wrapper
    state = {k: v for k, v in wrapper.__dict__.items() if k not in ("reducer", "logger")}
    state["_static_graph_delay_allreduce_enqueued"] = False
    hooks = list(state.get("_comm_hooks", ()))
    state["_comm_hooks"] = []
    wrapper.reducer = None  # the old one takes its hooks off the parameters
    wrapper.__setstate__(state)
    for hook, hook_state in hooks:
        wrapper.register_comm_hook(hook_state, hook)
    _FOLLOWED[gates] = (ref(wrapper), changes)


@torch.no_grad()
def hand_out_(tensor: Tensor, wrapper: Any) -> None:
    """Give a tensor the values that it has on the wrapper's first rank."""
    group = wrapper.process_group
    distributed.broadcast(tensor.detach(), distributed.get_global_rank(group, 0), group=group)


def need_whole(model: nn.Module, tensors: Iterable[Tensor]) -> None:
    """Raise if a model or one of its tensors is sharded."""
    # by name, because importing FSDP takes half a second
    kinds = [*type(model).__mro__, *(type(tensor) for tensor in tensors)]
    if any(
        kind.__name__ in ("FSDPModule", "FullyShardedDataParallel", "DTensor") for kind in kinds
    ):
        raise GateError(
            "the model is sharded by FSDP, and gates need whole parameters: train the dense phase "
            "with FSDP, then load its weights into a model that is not sharded and attach gates "
            "there; DistributedDataParallel trains it on several GPUs."
        )
