"""An LSTM classifier in the Trainer of transformers, pruned to a quarter by a callback.

The texts are the twelve longest help pages of Python itself, cut into pieces of 30 words. The
classifier tells pages about types, strings and operators from the others. The pieces are few and
alike, so no model gets all of them right.
"""

import copy
import re
import tempfile
from pydoc_data.topics import topics

import torch
from torch import nn
from transformers import Trainer, TrainingArguments, set_seed

import thinrnn
from thinrnn.integrations.transformers import NeuronSelection

WORDS, LENGTH = 800, 30


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 48)
        self.lstm = nn.LSTM(48, 64, batch_first=True)
        self.head = nn.Linear(64, 2)

    def forward(self, tokens, labels=None):
        logits = self.head(self.lstm(self.embedding(tokens))[0].mean(1))
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def read_rows() -> list[dict[str, torch.Tensor]]:
    """Return pieces of the pages as numbers of words, with a label each."""
    pages = {name: re.findall(r"[a-z_]+", text.lower()) for name, text in topics.items()}
    every = [word for words in pages.values() for word in words]
    common = sorted(set(every), key=lambda word: (-every.count(word), word))[: WORDS - 1]
    number = {word: i + 1 for i, word in enumerate(common)}
    long = sorted(pages, key=lambda name: -len(pages[name]))[:12]
    rows = []
    for name in long:
        label = torch.tensor(
            int(
                name
                in (
                    "types",
                    "typesseq",
                    "formatstrings",
                    "string-methods",
                    "operator-summary",
                    "typesmapping",
                    "specialnames",
                )
            )
        )
        tokens = torch.tensor([number.get(word, 0) for word in pages[name]])
        pieces = tokens[: len(tokens) // LENGTH * LENGTH].view(-1, LENGTH)
        rows += [{"tokens": piece, "labels": label} for piece in pieces]
    order = torch.randperm(len(rows)).tolist()
    return [rows[i] for i in order]


def train_and_test(model: nn.Module, **pruning) -> tuple[float, float | None]:
    """Train a model; return the part of the pieces it gets right, and what making it small cost."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=8,
            per_device_train_batch_size=16,
            learning_rate=5e-3,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        trainer = Trainer(model, arguments, train_dataset=rows[200:])
        selection = NeuronSelection(trainer, **pruning) if pruning else None
        if selection:
            trainer.add_callback(selection)
        trainer.train()
        found = trainer.predict(rows[:200])
    right = (found.predictions.argmax(-1) == found.label_ids).mean()
    return float(right), selection.difference if selection else None


set_seed(0)
rows = read_rows()
dense = Classifier()
small = copy.deepcopy(dense)
before, _ = train_and_test(dense)
after, difference = train_and_test(small, target={"params": 0.25})

print(small)
print(f"right answers of the dense model: {before:.1%}")
print(f"right answers: {after:.1%}")
print(f"parameters: {thinrnn.count(dense).params:,} -> {thinrnn.count(small).params:,}")
print(f"largest difference of the outputs: {difference:.1e}")
piece = rows[0]["tokens"][None]
print(thinrnn.benchmark({"dense": dense, "small": small}, piece, seconds=0.5))
