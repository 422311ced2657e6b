"""Language models on any text: settings by name."""

from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.recipes.named_settings import Presets

PRESETS = Presets("language_model", is_general=True)


@PRESETS.add("lm", "your own text, sizes chosen from it")
def lm() -> LanguageModelSettings:
    """A model of words, or of characters where words are few; sizes and rates follow the text."""
    return LanguageModelSettings(minutes=10)


@PRESETS.add("char", "your own text, character level")
def char() -> LanguageModelSettings:
    """The same on characters."""
    return LanguageModelSettings(level="char", minutes=10)


@PRESETS.add("demo", "the text that comes with Python", "39.87 / 35.38, 0.32M weights")
def demo() -> LanguageModelSettings:
    """Two minutes on two cores, on the text that comes with Python."""
    return LanguageModelSettings(
        train="pydoc",
        lower=True,
        punctuation=True,
        min_count=3,
        embedding=200,
        hidden=(200, 200),
        tied=True,
        dropout=0.3,
        init_range=0.3,
        epochs=10,
        batch=24,
        bptt=20,
        lr=5e-3,
        warmup=100,
        distill=0.5,
        gate_lr=0.05,
        target_params=0.33,
        target_time=0.35,
        bench_seconds=0.5,
    )
