"""What a layer is to thinrnn: rows of neurons that a module takes in and hands out.

A *space* is a row of neurons with the slots that each neuron owns in the module's parameters. A
class says which spaces a module has, where they appear in its arguments and in its result, and how
its attributes follow from the shapes of its parameters. Everything else (coupling, gates, counting,
cutting) works from that.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from thinrnn.plan import Role

Edit = Callable[[str, Tensor], Tensor]  # (space, values with channels last) -> new values


@dataclass(frozen=True)
class Slot:
    """Neuron j owns the positions `start + j` along `dim` of a module's parameter."""

    parameter: str
    dim: int
    starts: tuple[int, ...]
    role: Role


@dataclass(frozen=True)
class Space:
    """A row of neurons of one module."""

    name: str
    size: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class Intake:
    """What a call hands to one space; `values` has the neurons in its last dimension."""

    argument: str
    space: str
    values: Tensor


class Layer:
    """How one module takes in and hands out neurons; by default "input" and "output"."""

    axis = -1  # where the channels are, in the tensor it takes and in the one it returns
    base: type[nn.Module]  # the class of torch whose forward it runs

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name = name
        self.module = module
        self.spaces: dict[str, Space] = {}
        self.build()

    def build(self) -> None:
        """Fill `self.spaces`."""
        raise NotImplementedError

    def resize(self) -> None:
        """Set the module's attributes to what the shapes of its parameters say."""
        raise NotImplementedError

    def intakes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Intake]:
        """Yield what a call with these arguments hands to the module's spaces."""
        values = argument(args, kwargs, 0, "input").movedim(self.axis, -1)
        yield Intake("input", self.entry, values)

    def choices(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
        """Yield the indices with which a call chooses among rows of the module's parameters."""
        return iter(())

    def edit(self, result: Any, change: Edit) -> Any:
        """Return the module's result with `change` applied to each space in it."""
        return change("output", result.movedim(self.axis, -1)).movedim(-1, self.axis)

    @property
    def entry(self) -> str:
        """The space that the first argument belongs to."""
        return "input" if "input" in self.spaces else "output"

    @property
    def state_spaces(self) -> list[list[str]]:
        """The spaces of the states of a recurrent layer: hidden (and cell), entry by entry."""
        return []

    @property
    def is_plain(self) -> bool:
        """Whether the module is called as torch's own class is; a subclass may have its own way."""
        return type(self.module).forward is self.base.forward

    def add(self, name: str, size: int, *slots: tuple[str, int, tuple[int, ...], Role]) -> None:
        """Add a space; slots of parameters that the module does not have are left out."""
        present = (Slot(*slot) for slot in slots if self.has(slot[0]))
        self.spaces[name] = Space(name, size, tuple(present))

    def has(self, parameter: str) -> bool:
        tensor = self.module._parameters.get(parameter)
        return tensor is not None or self.module._buffers.get(parameter) is not None

    def full_name(self, what: str) -> str:
        """Return the name that a parameter or argument of the module has in the model."""
        return f"{self.name}.{what}" if self.name else what

    def label(self, space: str) -> str:
        """Return the name that a space has in a plan."""
        parts = [self.name, "" if space == "output" else space]
        return ".".join(part for part in parts if part) or "output"


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, *names: str) -> Any:
    """Return an argument given by position or by one of its names, else None."""
    if len(args) > place:
        return args[place]
    return next((kwargs[name] for name in names if name in kwargs), None)
