"""How thinrnn sees a layer: rows of neurons that a module reads and returns.

A *space* is a row of neurons with the slots that each neuron owns in the module's parameters. A
layer class describes which spaces a module has, where they appear in its arguments and in its
result, and how its attributes follow from the shapes of its parameters. Discovery, gates, counting
and cutting work from that alone.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from thinrnn._layers.computed import Computed
from thinrnn.group import Role

Edit = Callable[[str, Tensor], Tensor]  # (space, values with neurons last) -> new values
States = list[tuple[Sequence[str], Sequence[Tensor]]]  # hidden (and cell): spaces, their values


@dataclass(frozen=True)
class Slot:
    """Neuron j owns the positions `start + j` along `dim` of a module's parameter.

    With a `period` it owns `start + j % period`, together with others.
    """

    parameter: str
    dim: int
    starts: tuple[int, ...]
    role: Role
    period: int = 0

    def positions(self, neuron: int) -> list[int]:
        """Return the positions that a neuron owns."""
        place = neuron % self.period if self.period else neuron
        return [start + place for start in self.starts]


@dataclass(frozen=True)
class Space:
    """A row of neurons of one module."""

    name: str
    size: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class Intake:
    """What a call passes to one space; `values` has the neurons in its last dimension."""

    argument: str
    space: str
    values: Tensor


class Layer:
    """How one kind of module reads and returns neurons.

    Write a subclass and register it with `register_layer` to let thinrnn prune a module of your
    own. `build` and `resize` are required. The other methods describe a module that is called with
    its input first and returns one tensor, both with neurons in the last dimension; override those
    that do not fit. The module must own its parameters itself, not through child modules, and read
    them as attributes (`self.weight`) in its `forward`. Parameters that multiply their input have
    "weight" in their names.

    Attributes:
        name: the module's name in the model.
        module: the module.
        spaces: the rows of neurons by name, filled by `build`. The names "input" and "output"
            are what the module reads and returns.
        axis: where the neurons are in the tensor that the module takes and in the one it returns.
        multiplies: whether parameters named "weight" are matrices that multiply the input.
        stacked: whether a state has a first dimension over layers and directions, as in `nn.LSTM`.

    >>> class AffineLayer(Layer):
    ...     '''A module with `weight` and `bias` for each channel.'''
    ...     multiplies = False
    ...     def build(self):
    ...         self.add("output", len(self.module.weight), *self.rows("weight", "bias"))
    ...     def resize(self):
    ...         self.module.channels = len(self.module.weight)
    """

    axis = -1
    multiplies = True
    stacked = False
    base: type[nn.Module]  # the registered class, whose forward the module runs

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name = name
        self.module: Any = module
        self.spaces: dict[str, Space] = {}
        self.computed: dict[str, Computed] = {}  # weights that are no parameters

    def build(self) -> None:
        """Describe the neurons: call `add` for each row of them."""
        raise NotImplementedError

    def resize(self) -> None:
        """Set the module's size attributes from the shapes of its parameters, after a cut."""
        raise NotImplementedError

    def refusal(self) -> str:
        """Return why this module cannot be cut although its class can, or an empty text."""
        return ""

    @property
    def matrices(self) -> Sequence[str]:
        """Parameters without which the module is refused: a hook or wrapper computes them."""
        return ()

    @property
    def state_spaces(self) -> list[list[str]]:
        """The spaces of a recurrent layer's states: hidden (and cell), entry by entry."""
        return []

    @property
    def is_recurrent(self) -> bool:
        """Whether layers of this class have states."""
        return type(self).state_spaces is not Layer.state_spaces

    def states(self, hx: Any) -> States:
        """Return hidden (and cell) states as spaces and their values."""
        kinds = self.state_spaces
        given = hx if len(kinds) > 1 else (hx,)
        return [
            (spaces, list(state) if self.stacked else [state])
            for spaces, state in zip(kinds, given, strict=True)
        ]

    def state_of(self, result: Any) -> Any:
        """Return the states in a result, in the form in which the module takes them back."""
        return result[1] if self.stacked else result

    def intakes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Intake]:
        """Yield what a call passes to the module's spaces: its input, and a state if given."""
        yield Intake("input", self.entry, argument(args, kwargs, 0, "input").movedim(self.axis, -1))
        hx = argument(args, kwargs, 1, "hx") if self.is_recurrent else None
        for spaces, values in () if hx is None else self.states(hx):
            for space, state in zip(spaces, values, strict=True):
                yield Intake("state", space, state)

    def choices(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
        """Yield the indices with which a call picks rows of the module's parameters."""
        return iter(())

    def edit(self, result: Any, change: Edit) -> Any:
        """Return the module's result with `change` applied to each space in it."""
        return change("output", result.movedim(self.axis, -1)).movedim(-1, self.axis)

    def ties(self) -> Iterator[list[tuple[str, int]]]:
        """Yield neurons, as spaces and numbers, that can only go together."""
        return iter(())

    def add(self, name: str, size: int, *slots: Slot) -> None:
        """Add a row of neurons; slots of parameters that the module does not have are left out."""
        own = tuple(place for slot in slots for place in self._places(slot))
        self.spaces[name] = Space(name, size, own)

    def _places(self, slot: Slot) -> Iterator[Slot]:
        """Yield where a slot is: in a parameter of the module, or in what that is computed from."""
        computed = self.computed.get(slot.parameter)
        if computed is None:
            yield from [slot] if self.has(slot.parameter) else []
            return
        yield replace(slot, parameter=computed.source)
        if computed.lengths and computed.dim == slot.dim:
            yield replace(slot, parameter=computed.lengths)

    @staticmethod
    def rows(*parameters: str, starts: Sequence[int] = (0,)) -> list[Slot]:
        """Return slots for `add`: rows (dimension 0) of these parameters produce the neurons.

        With `starts=(0, n)` neuron j owns rows j and n + j, as in a layer with two gates.
        """
        return [Slot(parameter, 0, tuple(starts), "produce") for parameter in parameters]

    @staticmethod
    def columns(*parameters: str, start: int = 0) -> list[Slot]:
        """Return slots for `add`: columns (dimension 1) of these parameters read the neurons."""
        return [Slot(parameter, 1, (start,), "read") for parameter in parameters]

    @property
    def entry(self) -> str:
        """The space that the first argument belongs to."""
        return "input" if "input" in self.spaces else "output"

    @property
    def is_plain(self) -> bool:
        """Whether the module is called as its registered class is; a subclass may differ."""
        return type(self.module).forward is self.base.forward

    def has(self, parameter: str) -> bool:
        """Return whether the module has this parameter or buffer."""
        tensor = self.module._parameters.get(parameter)
        return tensor is not None or self.module._buffers.get(parameter) is not None

    def full_name(self, what: str) -> str:
        """Return the name that a parameter or argument of the module has in the model."""
        elsewhere = {n for c in self.computed.values() for n in (c.source, c.lengths)}
        return f"{self.name}.{what}" if self.name and what not in elsewhere else what

    def label(self, space: str) -> str:
        """Return the name that a space has in a plan."""
        parts = [self.name, "" if space == "output" else space]
        return ".".join(part for part in parts if part) or "output"


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, *names: str) -> Any:
    """Return an argument given by position or by one of its names, else None."""
    if len(args) > place:
        return args[place]
    return next((kwargs[name] for name in names if name in kwargs), None)
