"""What the templates show: plain data, with every number written out as text."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class Table:
    """A table; the first cell of each row names the row."""

    caption: str  # for screen readers
    head: Sequence[str]  # empty for a table without a head
    rows: Sequence[Sequence[str]]
    strong: int | None = None  # the highlighted column
    stacks: bool = False  # on a phone each row's name is above its cells, so that all columns fit


@dataclass(frozen=True)
class Card:
    """A big number, what it is, and what it compares with."""

    title: str
    number: str
    note: str


@dataclass(frozen=True)
class Key:
    """One entry of a legend."""

    name: str
    text: str
    colour: str
    style: str  # solid, dashed, dotted, dot, ring or square


@dataclass(frozen=True)
class Chart:
    """A drawing with its caption, its legend and its numbers."""

    key: str
    title: str
    note: str
    keys: Sequence[Key]
    drawing: Markup
    table: Table


@dataclass(frozen=True)
class Picture:
    """The gates of one group over time."""

    name: str
    note: str
    source: str
    first: int
    last: int
