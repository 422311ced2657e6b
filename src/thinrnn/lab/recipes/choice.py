"""A setting that the tool has chosen, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from thinrnn._table import table


@dataclass(frozen=True)
class Choice:
    """A setting, its value and the reason in a few words."""

    name: str
    value: Any
    reason: str


def choice_table(choices: Sequence[Choice]) -> str:
    """Return what was chosen as aligned columns: setting, value, reason."""
    rows = [(choice.name, shown(choice.value), choice.reason) for choice in choices]
    return table([("chosen", "", "because"), *rows], rule=True)


def shown(value: Any) -> str:
    """Return a value as --set takes it."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
