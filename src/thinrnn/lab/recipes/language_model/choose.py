"""Settings that the user left open, chosen from the text, the device and the time.

    first pages ── level, punctuation
    whole text ─── min_count, batch, bptt, width ── a few timed steps ── epochs ── lr, warmup, ...

What the user has set stays as it is. The constants come from runs on small texts
(`benchmarks/robustness.py` checks them on others) and from the presets for the Penn Treebank.
"""

import itertools
import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from thinrnn.lab.recipes.choice import Choice
from thinrnn.lab.recipes.language_model.corpus import Text, load_text, pieces_of
from thinrnn.lab.recipes.language_model.data import UNK, Splitting, split_tokens, streams
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.recipes.language_model.windows import TextWindows
from thinrnn.lab.recipes.phase import PHASE_TIMES, Phase
from thinrnn.lab.recipes.protocol import Recipe

Settings = LanguageModelSettings

FEW_WORDS = 50_000  # fewer are too few to learn from: characters then
LONGEST_WORD = 10.0  # a longer mean: text without blanks between words
ATTACHED = 0.02  # of the words end with a mark: nobody has split them from it
MOST_WORDS, WORDS_PER_TOKEN = 33_000, 1 / 30
WIDTHS = (64, 96, 128, 200, 300, 400, 650, 1000, 1500)
WIDTH = 0.7  # times the square root of the tokens
READ = 8e6  # tokens that are worth reading, in 1 to 10 passes
MOST_EPOCHS = 20
OTHER_SECONDS = 15.0  # reading, timing, the report
# The rate of Adam times the square root of the width; the rates of SGD.
ADAM = {"lstm": 0.07, "gru": 0.07, "rnn": 0.05, "rhn": 0.05}
SGD = {"lstm": 20.0, "gru": 8.0, "rnn": 2.0, "rhn": 7.0}
# Wide layers that have no state of their own beside the output: the rate of Adam times the width.
WIDE_ADAM = {"gru": 1.0, "rnn": 0.5}
GATE_RATE = 2.2  # over the square root of the steps


@dataclass(frozen=True)
class Choices:
    """Settings, and what has been chosen in them."""

    settings: Settings
    made: tuple[Choice, ...] = ()

    def choose(self, reason: str, **values: Any) -> "Choices":
        """Return the settings with those values that are still open."""
        values = {name: value for name, value in values.items() if self.leaves_open(name)}
        made = [Choice(name, value, reason) for name, value in values.items()]
        return replace(self, settings=self.settings.replaced(**values), made=(*self.made, *made))

    def leaves_open(self, name: str) -> bool:
        return self.settings.leaves_open(name)


def choose(
    recipe: Recipe[Settings, Text], settings: Settings, device: torch.device
) -> tuple[Settings, tuple[Choice, ...]]:
    """Return settings with nothing left open, and what was chosen why.

    Without a time budget nothing is chosen: open settings have their defaults.
    """
    if not any(map(settings.is_to_be_chosen, settings.choosable)):
        return settings, ()
    choices = choose_tokens(Choices(settings))
    text = load_text(choices.settings)
    choices = choose_windows(choices, len(text.train), device)
    choices = choose_size(choices, recipe, text, device)
    choices = choose_training(choices, len(text.train))
    return choices.settings, choices.made


def choose_tokens(choices: Choices) -> Choices:
    """Choose what a token is, and which ones the model knows."""
    text = "".join(pieces_of(choices.settings, "train"))
    words = text.split()
    letters = len(text) / max(1, len(words)) - 1
    if letters > LONGEST_WORD:
        choices = choices.choose(f"{letters:.0f} characters to a word", level="char")
    elif len(words) < FEW_WORDS and len(set(words)) > 1:
        choices = choices.choose(f"{len(words):,} words are few", level="char")
    else:
        choices = choices.choose(f"{len(words):,} words", level="word")
    attached = sum(len(word) > 1 and word[-1] in ".,;:)" for word in words) / max(1, len(words))
    if choices.settings.level == "word" and attached > ATTACHED:
        reason = f"{attached:.0%} of the words end with a mark"
        choices = choices.choose(reason, punctuation=True)
    if not choices.leaves_open("min_count"):
        return choices
    if choices.settings.level == "word" and UNK in words:
        return choices.choose(f"rare words are {UNK} already", min_count=1)
    counts = _counts(choices.settings)
    least, known = usual_min_count(counts, is_word=choices.settings.level == "word")
    return choices.choose(f"{known:,} of {len(counts):,} tokens", min_count=least)


def _counts(settings: Settings) -> Counter[str]:
    splitting = Splitting(settings.level, settings.lower, settings.punctuation)
    return Counter(split_tokens(pieces_of(settings, "train"), splitting))


def usual_min_count(counts: Counter[str], *, is_word: bool) -> tuple[int, int]:
    """Return how often a token must occur to be known, 2 at least, and how many are then."""
    most = min(MOST_WORDS, max(1000, int(WORDS_PER_TOKEN * counts.total())))
    often = Counter(counts.values())
    known = len(counts)
    for least in itertools.count(1):
        if known <= most and (least >= 2 or not is_word):
            break
        known -= often[least]
    return least, known


def choose_windows(choices: Choices, tokens: int, device: torch.device) -> Choices:
    """Choose how much text a training step reads."""
    is_char = choices.settings.level == "char"
    choices = choices.choose("words" if not is_char else "characters", bptt=100 if is_char else 35)
    steps, most = 200, 64 if device.type == "cuda" or tokens > 500_000 else 32
    batch = 8 * round(tokens / steps / choices.settings.bptt / 8)
    batch = max(1, min(most, max(8, batch), tokens // 64))
    return choices.choose(f"{tokens:,} tokens, some {steps} steps or more in a pass", batch=batch)


def choose_size(
    choices: Choices, recipe: Recipe[Settings, Text], text: Text, device: torch.device
) -> Choices:
    """Choose the width and the number of passes, by the time of a few steps."""
    tokens = len(text.train)
    budget = max(OTHER_SECONDS, 60 * (choices.settings.minutes or 0) - OTHER_SECONDS)
    wanted = max(1, min(10, round(READ / tokens)))
    candidates = list(_widths(choices, WIDTH * math.sqrt(tokens)))
    while True:
        sized = candidates.pop()
        if not sized.leaves_open("epochs") and not candidates:
            return sized
        passes = budget / pass_seconds(recipe, sized.settings, text, device)
        if passes >= wanted or not candidates:
            break
        # The time goes with the width at least: leave out those that are too wide anyhow.
        allowed = max(sized.settings.hidden) * passes / wanted
        while len(candidates) > 1 and max(candidates[-1].settings.hidden) > allowed:
            candidates.pop()
    most = max(1, min(MOST_EPOCHS, int(passes)))
    minutes = most / passes * budget / 60
    of = choices.settings.minutes
    reason = f"about {minutes:.1f} of {of:g} minutes, by the speed of a few steps"
    if passes < 1:
        reason = f"even one pass takes about {minutes:.1f} minutes, not {of:g}"
    return sized.choose(reason, epochs=most)


def _widths(choices: Choices, most: float) -> Iterator[Choices]:
    """Yield the choices with each width that the text allows, the narrowest first."""
    settings = choices.settings
    if not choices.leaves_open("hidden"):
        embedding = settings.hidden[-1] if settings.level == "word" or settings.tied else 64
        yield tie(choices.choose("like the last layer", embedding=embedding))
        return
    if not choices.leaves_open("embedding") and settings.tied:
        yield choices.choose("like the embedding", hidden=(settings.embedding,) * 2)
        return
    for width in (w for w in WIDTHS if w <= most or w == WIDTHS[0]):
        sized = choices.choose(f"the text allows {most:.0f}", hidden=layers(settings, width))
        embedding = width if settings.level == "word" or settings.tied else 64
        yield tie(sized.choose(f"for {settings.level}s", embedding=embedding))


def layers(settings: Settings, width: int) -> tuple[int, ...]:
    """Return the layers of a width: a recurrent highway network is deep in itself."""
    return (width,) if settings.cell == "rhn" else (width, width)


def tie(choices: Choices) -> Choices:
    """Choose tied weights where the shape allows them."""
    settings = choices.settings
    fits = settings.hidden[-1] == settings.embedding and settings.level == "word"
    return (
        choices.choose("the embedding is as wide as the last layer", tied=True) if fits else choices
    )


def choose_training(choices: Choices, tokens: int) -> Choices:
    """Choose how weights begin and change, from a shape and a number of passes."""
    settings = choices.settings
    steps = max(1, settings.epochs * tokens // (settings.batch * settings.bptt))
    width, is_adam = max(settings.hidden), settings.optimizer == "adam"
    if choices.leaves_open("lr"):
        reason = f"{settings.optimizer}, {settings.cell}" + f", width {width}" * is_adam
        lr = usual_lr(settings.optimizer, settings.cell, width)
        choices = choices.choose(reason, lr=lr)
        choices = choices.choose("the control has its own rate", lr_width=width if is_adam else 0)
    choices = choices.choose(f"a twentieth of {steps:,} steps", warmup=min(1000, steps // 20))
    gate_lr = _round(min(0.1, max(0.005, GATE_RATE / math.sqrt(steps))))
    choices = choices.choose(f"{steps:,} steps", gate_lr=gate_lr)
    choices = choices.choose(f"{settings.epochs} passes", dropout=usual_dropout(settings.epochs))
    choices = choices.choose("start as the unigram model", init_bias="frequency")
    return choices.choose("by width", init_range="width")


def usual_width(tokens: int) -> int:
    """Return the widest layer that a text of so many tokens allows."""
    return max((w for w in WIDTHS if w <= WIDTH * math.sqrt(tokens)), default=WIDTHS[0])


def usual_lr(optimizer: str, cell: str, width: int) -> float:
    """Return the learning rate of an optimizer for layers of a width."""
    if optimizer != "adam":
        return SGD[cell]
    return _round(min(ADAM[cell] / math.sqrt(width), WIDE_ADAM.get(cell, math.inf) / width))


def usual_dropout(epochs: int) -> float:
    """Return the dropout for so many passes: text that is read once cannot be memorized."""
    return 0.1 if epochs <= 3 else 0.3 if epochs <= 12 else 0.4


def pass_seconds(
    recipe: Recipe[Settings, Text], settings: Settings, text: Text, device: torch.device
) -> float:
    """Return the seconds of one pass over the text in all phases, by a second of dense steps."""
    phase = Phase(recipe, settings, "dense", text, device)
    phase.batches = TextWindows(streams(text.train, settings.batch).to(device), settings.bptt)
    for _ in range(5 if device.type == "cuda" else 1):  # until there is a CUDA graph
        phase.take_step()
    steps, began = 0, _now(device)
    while steps < 1 or (steps < 20 and _now(device) - began < 1):
        phase.take_step()
        steps += 1
    seconds = (_now(device) - began) / steps
    return seconds * phase.epoch_steps * sum(PHASE_TIMES[name] for name in settings.phases)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _round(value: float) -> float:
    """Return a value with two digits."""
    return float(f"{value:.2g}")
