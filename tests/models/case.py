"""What a test model brings along: how to build it and one example call."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn import Plan

CASES: dict[str, "Case"] = {}


@dataclass(frozen=True)
class Case:
    """A model as a user might write it; expected.json has the groups to find in it."""

    build: Callable[[], nn.Module]
    example: Callable[[], Any]
    declare: Callable[[Plan], Plan] | None = None  # readers that the user declares
    dtype: torch.dtype = torch.float64
    steps: bool = True  # whether training steps make sense: gradients reach the gates
    states: tuple[str, ...] = ()  # entries of the result whose width may change
    keeps_state: bool = False  # whether a call depends on the calls before it


def case(example: Callable[[], Any], **more: Any) -> Callable[[type], type]:
    """Register a model class that is built without arguments."""

    def register(cls: type) -> type:
        CASES[cls.__name__] = Case(cls, example, **more)
        return cls

    return register


def floats(*shape: int) -> Tensor:
    return torch.randn(*shape)


def words(vocabulary: int, *shape: int) -> Tensor:
    return torch.randint(1, vocabulary, shape)
