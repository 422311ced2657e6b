"""Settings by name."""

from thinrnn.recipes import Preset
from thinrnn.recipes.language_model import ptb, ptb_rhn
from thinrnn.recipes.language_model.settings import Settings


def lm() -> Settings:
    """A two-layer LSTM for your own text, a quarter of its parameters in the end."""
    return Settings()


def char() -> Settings:
    """The same on characters."""
    return Settings(level="char", embedding=64, hidden=(400, 400), bptt=100, batch=32)


def demo() -> Settings:
    """Two minutes on two cores, on the text that comes with Python."""
    return Settings(
        train="pydoc",
        lower=True,
        punctuation=True,
    )


PRESETS = (
    Preset("lm", "language_model", "your own text, word level", lm),
    Preset("char", "language_model", "your own text, character level", char),
    Preset("demo", "language_model", "the text that comes with Python", demo),
    *ptb.PRESETS,
    *ptb_rhn.PRESETS,
)
