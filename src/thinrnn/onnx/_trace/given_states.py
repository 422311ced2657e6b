"""States that the caller gives and gets back: one width going in and coming out."""

from typing import Any

import torch
from torch import Tensor, nn

from thinrnn._model.copying import kept_attributes
from thinrnn._model.tree import call_arguments, map_tensors, tensors_in
from thinrnn._surgery.full_width_inputs import FullWidthInput, FullWidthStates
from thinrnn.nn.states import States


def at_own_width(model: nn.Module, example: Any) -> Any:
    """Return an example whose states have the widths that the model itself returns.

    A small model also takes the states of the large one, and narrows them. In a file the state
    would then go in wide and come out narrow, and could not be fed back.
    """
    for hook in model._forward_pre_hooks.values():
        if isinstance(hook, FullWidthStates):
            args, kwargs = hook(model, *call_arguments(example))
            example = kwargs or args
    distinct = map_tensors(example, lambda t: torch.randn_like(t) if t.is_floating_point() else t)
    given = dict(zip(map(id, tensors_in(example)), tensors_in(distinct), strict=True))
    narrowed: dict[int, Any] = {}

    def look(hook: FullWidthInput) -> Any:
        def see(_: nn.Module, args: Any, kwargs: Any) -> None:
            hx = args[1] if len(args) > 1 else kwargs.get("hx")
            states = hx if isinstance(hx, tuple | list) and len(hook.states) > 1 else (hx,)
            for state, rows in zip(states, hook.states, strict=False):
                for key, tensor in given.items():
                    if isinstance(state, Tensor) and _equal(state, tensor):
                        narrowed[key] = (hook, rows)

        return see

    places = [
        module.register_forward_pre_hook(look(hook), prepend=True, with_kwargs=True)
        for module in model.modules()
        for hook in list(module._forward_pre_hooks.values())
        if isinstance(hook, FullWidthInput) and hook.states
    ]
    if not places:
        return example
    try:
        with kept_attributes(model), torch.no_grad():
            args, kwargs = call_arguments(distinct)
            model(*args, **kwargs)
    except Exception:  # it is reported where the example itself is run
        return example
    finally:
        for place in places:
            place.remove()

    def narrow(tensor: Tensor) -> Any:
        if id(tensor) not in narrowed:
            return tensor
        hook, rows = narrowed[id(tensor)]
        parts = hook._state(tensor, rows)
        return parts if isinstance(parts, Tensor) else States(parts)

    return map_tensors(example, narrow)


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other.to(one.dtype))


def fed_back(
    inputs: list[Tensor], outputs: list[Tensor], given: list[Tensor], last: list[Tensor]
) -> dict[int, int]:
    """Return which input takes the next value of which output, by their places.

    `given` are the states (B, size) in which the layers began, and `last` those in which the same
    layers ended.
    """
    began = {place: made_of(tensor, given) for place, tensor in enumerate(inputs)}
    ended = {place: made_of(tensor, last) for place, tensor in enumerate(outputs)}
    return {
        here: there
        for here, of in began.items()
        for there, same in ended.items()
        if of and of == same
    }


def made_of(tensor: Tensor, states: list[Tensor]) -> tuple[int, ...]:
    """Return which states a tensor is made of, in its order; nothing if it is not."""
    if tensor.dim() < 2:
        return ()
    found = []
    for row in tensor.reshape(-1, *tensor.shape[-2:]):
        place = next((k for k, state in enumerate(states) if torch.equal(row, state)), None)
        if place is None:
            return ()
        found.append(place)
    return tuple(found)
