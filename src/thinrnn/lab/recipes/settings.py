"""Settings of a recipe: a dataclass whose fields carry their help, read from text and TOML.

@dataclass(frozen=True)
class Settings:
    lr: float = setting(20.0, "learning rate of the weights", above=0)
    cell: str = setting("lstm", "recurrent layer", choices=("lstm", "gru", "rnn"))

changed(Settings(), ["lr=5", "cell=gru"])
"""

import contextlib
import dataclasses
import difflib
import json
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from thinrnn.lab.run.errors import InputError

S = TypeVar("S")


def setting(
    default: Any,
    help: str,
    *,
    choices: tuple[str, ...] | None = None,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
) -> Any:
    """Return a dataclass field with its help and the values that it takes."""
    limits = {"help": help, "choices": choices, "above": above, "least": least, "most": most}
    return dataclasses.field(default=default, metadata=limits)


def changed(settings: S, assignments: Iterable[str]) -> S:
    """Return the settings with `key=value` texts applied, each checked against its type."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise InputError(f"'{assignment}' is not key=value: write --set {assignment}=VALUE.")
        values[key.strip()] = text.strip()
    return with_values(settings, values)


def from_toml(settings: S, path: str | Path) -> S:
    """Return the settings with the values of a TOML file applied."""
    try:
        with open(path, "rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}.") from None
    return with_values(settings, values)


def with_values(settings: S, values: Mapping[str, Any]) -> S:
    """Return the settings with values (texts or TOML/JSON values) applied."""
    hints = typing.get_type_hints(type(settings))
    fields = {field.name: field for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    new: dict[str, Any] = {}
    for key, value in values.items():
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f"did you mean '{near[0]}'?" if near else "'thinrnn list --settings' shows all."
            raise InputError(f"there is no setting '{key}': {hint}")
        new[key] = _typed(key, value, hints[key])
    return dataclasses.replace(settings, **new)  # type: ignore[type-var]


def check_limits(settings: Any) -> None:
    """Raise unless every field is inside the limits of its `setting`."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        limits = field.metadata
        items = value if isinstance(value, tuple) else (value,)
        for item in items:
            if limits.get("choices") and item not in limits["choices"]:
                allowed = ", ".join(limits["choices"])
                raise InputError(f"{field.name} is '{item}', but must be one of: {allowed}.")
            if isinstance(item, bool) or not isinstance(item, int | float):
                continue
            for word, name, fails in (
                ("above", "above", lambda a, b: not a > b),
                ("at least", "least", lambda a, b: not a >= b),
                ("at most", "most", lambda a, b: not a <= b),
            ):
                limit = limits.get(name)
                if limit is not None and fails(item, limit):
                    raise InputError(f"{field.name} is {item}, but must be {word} {limit}.")


def described(settings: Any) -> list[tuple[str, str, str]]:
    """Return name, value and help of every field."""
    return [
        (field.name, _shown(getattr(settings, field.name)), field.metadata["help"])
        for field in dataclasses.fields(settings)
    ]


def as_json(settings: Any) -> dict[str, Any]:
    """Return the settings as JSON values; `with_values` reads them back."""
    return json.loads(json.dumps(dataclasses.asdict(settings)))


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _typed(key: str, value: Any, hint: Any) -> Any:
    """Return a text or a TOML value as the type of its field."""
    origin, kinds = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None or value in ("none", "None", ""):
            return None
        # Several kinds besides None: the last one's message covers the others.
        *others, last = [kind for kind in kinds if kind is not type(None)]
        for kind in others:
            with contextlib.suppress(InputError):
                return _typed(key, value, kind)
        return _typed(key, value, last)
    if origin is tuple:
        if isinstance(value, str):
            value = value.split(",") if value else []
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(_typed(key, item, kinds[0]) for item in items)
    read, kind = _READERS[origin or hint]
    try:
        return read(value)
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError):
        raise InputError(f"{key} is {value!r}, but must be {kind}.") from None


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)


def _whole(value: Any) -> int:
    number = _number(value)
    if number != int(number):
        raise ValueError
    return int(value) if isinstance(value, str) and value.strip().isdigit() else int(number)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value.strip()


def _flag(value: Any) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    return words[str(value).strip().lower()]


def _table(value: Any) -> dict[str, float]:
    table = json.loads(value) if isinstance(value, str) else value
    return {str(name): _number(number) for name, number in table.items()}


_READERS: dict[Any, tuple[Callable[[Any], Any], str]] = {
    int: (_whole, "a whole number"),
    float: (_number, "a number"),
    str: (_text, "a text"),
    bool: (_flag, "true or false"),
    Mapping: (_table, 'a number or a table such as {"rnn.weight_ih_l0": 1e-7}'),
}
