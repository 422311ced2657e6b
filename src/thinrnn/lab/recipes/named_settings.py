"""Settings with a name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from thinrnn.lab.recipes.settings import TrainingSettings

Build = TypeVar("Build", bound="Callable[[], TrainingSettings]")


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


class Presets(dict[str, Preset]):
    """Presets by name, all of one recipe; `add` gives a function that builds settings its name."""

    def __init__(
        self, recipe: str, *, prefix: str = "", corpus: str = "", is_general: bool = False
    ) -> None:
        super().__init__()
        self.recipe, self.prefix = recipe, prefix
        self.corpus, self.is_general = corpus, is_general

    def add(self, name: str, summary: str, expected: str = "") -> Callable[[Build], Build]:
        """Return a decorator that adds a function as the preset of this name."""

        def add(build: Build) -> Build:
            full = self.prefix + name
            more = (expected, self.corpus, self.is_general)
            self[full] = Preset(full, self.recipe, summary, build, *more)
            return build

        return add
