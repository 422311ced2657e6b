"""Settings with a name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thinrnn.lab.recipes.settings import TrainingSettings


@dataclass(frozen=True)
class Preset:
    """Settings with a name.

    Attributes:
        name: What `thinrnn train` takes.
        recipe: The package that trains it.
        summary: One line for `thinrnn list`.
        settings: Builds the settings.
        expected: The measured result, or an empty text.
        corpus: The public corpus that the preset needs, or an empty text.
        is_general: True for presets that work on any text. The others reproduce the results of
            the paper; `thinrnn list` shows them only with `--all`.
    """

    name: str
    recipe: str
    summary: str
    settings: "Callable[[], TrainingSettings]"
    expected: str = ""
    corpus: str = ""
    is_general: bool = False
