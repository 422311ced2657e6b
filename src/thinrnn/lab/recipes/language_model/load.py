"""Models in folders: written so that they can be read without the run that made them.

model/model.safetensors, thinrnn.json    the weights and what was cut (thinrnn.save)
      vocabulary.json                    the tokens, and how text is split into them
      recipe.json                        how the dense model is built
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import thinrnn
from thinrnn._surgery.save import Precision
from thinrnn.errors import FolderError
from thinrnn.lab.model_folder import built, load_weights, read_file, save_weights
from thinrnn.lab.recipes.language_model.corpus import encode_file, load_text
from thinrnn.lab.recipes.language_model.data import EOS, Vocabulary
from thinrnn.lab.recipes.language_model.evaluate import mean_loss, perplexity
from thinrnn.lab.recipes.language_model.files import LanguageModelFile, VocabularyFile
from thinrnn.lab.recipes.language_model.model import LanguageModel, example_tokens
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.run.files import write_json
from thinrnn.lab.run.progress import Progress


@dataclass(frozen=True)
class LoadedLanguageModel:
    """A model as it was saved, ready to be used."""

    model: nn.Module
    vocabulary: Vocabulary

    def example(self, batch: int, steps: int) -> torch.Tensor:
        """Return an input of the given size."""
        return example_tokens(batch, steps, last=len(self.vocabulary) - 1)


def save_model(
    model: nn.Module,
    folder: Path,
    arguments: dict[str, Any],
    vocabulary: Vocabulary,
    precision: Precision | None = None,
) -> None:
    """Write a model with all that `load_model` needs; `arguments` build the dense model.

    A small model, made by `compact`, is stored with the given precision; another one as it is.
    """
    save_weights(model, folder, precision)
    splitting = dataclasses.asdict(vocabulary.splitting)
    write_json(folder / "vocabulary.json", {**splitting, "tokens": list(vocabulary.tokens)})
    write_json(folder / "recipe.json", {"recipe": "language_model", "model": arguments})


def load_model(folder: str | Path) -> LoadedLanguageModel:
    """Return the model and vocabulary of a folder."""
    folder = Path(folder)
    recipe = read_file(folder / "recipe.json", LanguageModelFile)
    vocabulary = read_file(folder / "vocabulary.json", VocabularyFile).vocabulary()
    if len(vocabulary) != recipe.model.vocabulary:
        raise FolderError(
            f"'{folder / 'vocabulary.json'}' is damaged: tokens: there are {len(vocabulary)}, but "
            f"recipe.json says {recipe.model.vocabulary}."
        )
    model = built(lambda: LanguageModel(**recipe.arguments()), folder)
    return LoadedLanguageModel(load_weights(model, folder).eval(), vocabulary)


def score_model(
    folder: Path,
    files: dict[str, Path],
    *,
    config: dict[str, Any] | None = None,
    progress: Progress,
) -> dict[str, Any]:
    """Return perplexities on the given texts, or on those of the run's configuration."""
    loaded = load_model(folder)
    settings = LanguageModelSettings()
    if config is not None:
        settings = LanguageModelSettings(**config["settings"])
    if files:
        texts = {part: encode_file(path, loaded.vocabulary) for part, path in files.items()}
    else:
        text = load_text(settings)
        texts = {"valid": text.valid}
        if text.test is not None:
            texts["test"] = text.test
    start = loaded.vocabulary.number(EOS)
    found: dict[str, Any] = {}
    for part, tokens in texts.items():
        progress.line(f"{part}: {len(tokens):,} tokens")
        loss = mean_loss(loaded.model, tokens, batch=settings.eval_batch, start=start)
        found[f"{part}_perplexity"] = perplexity(loss)
        found[f"{part}_tokens"] = len(tokens)
    return {**found, **sizes(loaded.model)}


def sizes(model: nn.Module) -> dict[str, int]:
    """Return weights, parameters, mult-adds per token and bytes."""
    count = thinrnn.count(model, example_tokens(1, 1))
    return {name: getattr(count, name) for name in ("weights", "params", "macs", "bytes")}
