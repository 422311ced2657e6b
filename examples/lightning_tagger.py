"""A bidirectional LSTM tagger in Lightning's Trainer, pruned to a quarter by a callback.

The task is synthetic: the tag of a token tells which of its two neighbours are red, so the tagger
needs both directions. The LightningModule knows nothing of pruning.
"""

import copy

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import thinrnn
from thinrnn.integrations.lightning import NeuronSelection

TOKENS, EPOCHS = 30, 6


class Tagger(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 32)
        self.lstm = nn.LSTM(32, 48, bidirectional=True, batch_first=True)
        self.head = nn.Linear(96, 4)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])

    def training_step(self, batch, index):
        tokens, tags = batch
        return nn.functional.cross_entropy(self(tokens).flatten(0, 1), tags.flatten())

    def test_step(self, batch, index):
        tokens, tags = batch
        self.log("right", (self(tokens).argmax(-1) == tags).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)]


def sentences(count: int) -> DataLoader:
    tokens = torch.randint(TOKENS, (count, 12))
    red = nn.functional.pad((tokens % 3 == 1).long(), (1, 1))
    return DataLoader(TensorDataset(tokens, 2 * red[:, :-2] + red[:, 2:]), batch_size=32)


def fit_and_test(model: Tagger, *callbacks) -> float:
    """Train a model; return the part of the tags that it gets right."""
    trainer = Trainer(
        max_epochs=EPOCHS,
        callbacks=[*callbacks],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, train)
    return trainer.test(model, test, verbose=False)[0]["right"]


seed_everything(0, verbose=False)
train, test = sentences(1000), sentences(500)
dense = Tagger()
small = copy.deepcopy(dense)
selection = NeuronSelection(target={"params": 0.25})
before, after = fit_and_test(dense), fit_and_test(small, selection)

print(small)
print(f"right tags of the dense model: {before:.1%}")
print(f"right tags: {after:.1%}")
print(f"parameters: {thinrnn.count(dense).params:,} -> {thinrnn.count(small).params:,}")
print(f"largest difference of the outputs: {selection.difference:.1e}")
sentence = torch.randint(TOKENS, (1, 12))
print(thinrnn.benchmark({"dense": dense, "small": small}, sentence, seconds=0.5))
