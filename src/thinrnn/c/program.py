"""One step of a model as a list of C statements on vectors, and where the vectors lie.

input ──> statements ──> output
  state <──┘   └──> work, which ends with the step
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Buffer:
    """A vector: an input, an output, a state, a constant, or one that lives within the step."""

    kind: str  # "input", "output", "state", "constant" or "work"
    name: str
    size: int
    start: int  # its first address; no two buffers share one
    type: str = "float"


@dataclass(frozen=True)
class Operand:
    """A part of a buffer."""

    buffer: Buffer
    offset: int
    size: int


@dataclass(frozen=True)
class Statement:
    """C code with a place {0}, {1}, ... for each operand: those that it writes, then reads."""

    code: str
    writes: tuple[Operand, ...]
    reads: tuple[Operand, ...] = ()

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.writes + self.reads

    def moved(self, old: Buffer, new: Buffer) -> "Statement":
        """Return the statement with one buffer in the place of another."""
        writes, reads = (
            tuple(replace(o, buffer=new) if o.buffer is old else o for o in part)
            for part in (self.writes, self.reads)
        )
        return Statement(self.code, writes, reads)


@dataclass(frozen=True)
class StoredMatrix:
    """A weight that multiplies a vector; its rows make the outputs."""

    name: str
    values: Tensor  # as the model has it
    rows_first: bool  # else they are the columns of `values`

    @property
    def rows(self) -> Tensor:
        """The matrix with a row for each output."""
        return self.values if self.rows_first else self.values.t()


@dataclass
class Program:
    """All that a file holds."""

    inputs: list[Buffer] = field(default_factory=list)
    outputs: list[Buffer] = field(default_factory=list)
    states: list[Buffer] = field(default_factory=list)
    constants: dict[str, Tensor] = field(default_factory=dict)
    matrices: dict[str, StoredMatrix] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)

    def without_copies(self) -> "Program":
        """Return the program with outputs computed in place rather than copied at the end."""
        statements = list(self.statements)
        for output in self.outputs:
            (own, *more) = [s for s in statements if s.writes[0].buffer is output]
            source = own.reads[0].buffer
            whole = not more and source.kind == "work" and source.size == output.size
            if whole and own.reads[0].size == output.size:
                statements = [s.moved(source, output) for s in statements if s is not own]
        return replace(self, statements=statements)

    def placed(self) -> tuple[dict[Buffer, int], int]:
        """Return where each work buffer begins, and how much room they need together.

        Two buffers share room unless both are in use at some statement.
        """
        lives: dict[Buffer, tuple[int, int]] = {}
        for now, buffer in self._uses():
            lives[buffer] = (lives.get(buffer, (now, now))[0], now)
        places: dict[Buffer, int] = {}
        for buffer in sorted(lives, key=lambda one: -one.size):
            first, last = lives[buffer]
            taken = sorted(
                (places[other], places[other] + other.size)
                for other in places
                if lives[other][0] <= last and first <= lives[other][1]
            )
            at = 0
            for begin, end in taken:
                if at + buffer.size <= begin:
                    break
                at = max(at, end)
            places[buffer] = at
        return places, max((at + one.size for one, at in places.items()), default=0)

    def _uses(self) -> Iterator[tuple[int, Buffer]]:
        for now, statement in enumerate(self.statements):
            for operand in statement.operands:
                if operand.buffer.kind == "work":
                    yield now, operand.buffer
