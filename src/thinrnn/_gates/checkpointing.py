"""The noise of past calls: checkpointing runs layers again in the backward pass.

    call 1: noise, nodes 7 to 19   ─┐
    call 2: noise, nodes 21 to 33   ├──▶ backward: node 12 runs its layers again ──▶ call 1
    call 3: noise, nodes 35 to 47  ─┘

Autograd numbers its nodes in the order of their creation, so the node that is at work tells which
call its layers belong to.
"""

from collections import deque
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

REMEMBERED = 256  # calls of the model between a checkpointed call and its backward pass
Noise = dict[str, Tensor]  # of each group


@dataclass(frozen=True)
class _Draw:
    first: int  # the number of the first node made after it
    has_nodes: bool  # whether its call made nodes; else it ran without gradients
    noise: Noise
    drawn: Tensor  # in this process; under DistributedDataParallel the noise is that of rank 0


class Draws:
    """Remembers the noise of past calls, and finds that of a call that is run again."""

    def __init__(self) -> None:
        self._past: deque[_Draw] = deque(maxlen=REMEMBERED)

    def __reduce__(self) -> Any:
        return Draws, ()  # no backward pass is due in a copy

    def add(self, noise: Noise, drawn: Tensor) -> None:
        """Remember the noise of the call that begins now."""
        first = torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]
        self._past.append(_Draw(first, torch.is_grad_enabled(), noise, drawn))

    def of_layer(self, groups: Set[str]) -> Tensor | None:
        """Return the noise that a layer had in the call in which it ran first."""
        found = self._with_nodes(groups) or self._without(groups)
        return _joint(found[-1], groups) if found else None

    def of_model(self, groups: Set[str], drawn: Tensor) -> Tensor:
        """Return the noise that the whole model had when it ran first.

        Args:
            groups: Whose noise is needed.
            drawn: What the model draws now: the same again if checkpointing restores the random
                state, which it does by default.
        """
        past = [draw for draw in self._past if draw.drawn.shape == drawn.shape]
        if past:
            is_same = (torch.stack([draw.drawn for draw in past]) == drawn).all(1)
            found = [draw for draw, same in zip(past, is_same.tolist(), strict=True) if same]
            found = found or self._without(groups) or self._with_nodes(groups)
            if found:
                return _joint(found[-1], groups)
        return drawn

    def _with_nodes(self, groups: Set[str]) -> list[_Draw]:
        """Return the draws that were made before the node that is at work."""
        now = _node_at_work()
        return [
            d for d in self._past if d.has_nodes and d.first <= now and d.noise.keys() >= groups
        ]

    def _without(self, groups: Set[str]) -> list[_Draw]:
        """Return the draws that the node at work made when it ran its layers without gradients."""
        next_one = _node_at_work() + 1
        return [
            draw
            for draw in self._past
            if not draw.has_nodes and draw.first == next_one and draw.noise.keys() >= groups
        ]


def is_in_backward() -> bool:
    """Whether autograd is at work in this thread."""
    return torch._C._current_graph_task_id() != -1


def _node_at_work() -> int:
    node: Any = torch._C._current_autograd_node()
    return int(node._sequence_nr())


def _joint(draw: _Draw, groups: Set[str]) -> Tensor:
    return torch.cat([draw.noise[group] for group in groups])
