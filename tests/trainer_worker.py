"""What each process of the tests of trainers under torchrun runs: `trainer_worker.py WHICH OUT`."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
BATCH, EPOCHS = 8, 4  # the batch of all processes together
TOKENS = torch.randint(30, (48, 5), generator=torch.Generator().manual_seed(1))


def add_layers_(model: nn.Module) -> None:
    model.embedding = nn.Embedding(30, 12)
    model.rnn = nn.LSTM(12, 12, num_layers=2, batch_first=True)
    model.head = nn.Linear(12, 3)


def lightning() -> nn.Module:
    """Train in Lightning's trainer; the batches are those of one process, shared out."""
    import lightning.pytorch as pl

    from thinrnn.integrations.lightning import NeuronSelection

    class Tagger(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            add_layers_(self)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.rnn(self.embedding(x))[0])
            return out

        def on_train_epoch_start(self) -> None:
            torch.manual_seed(self.current_epoch)  # Lightning seeds several processes once more

        def training_step(self, batch: Any, index: int) -> Tensor:
            x, y = batch
            return nn.functional.cross_entropy(self(x).flatten(0, 1), y.flatten())

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    pl.seed_everything(0, verbose=False)
    model = Tagger().double()
    data = TensorDataset(TOKENS, TOKENS % 3)
    mine = DistributedSampler(data, WORLD, RANK, shuffle=False)
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        devices=WORLD,
        strategy="ddp" if WORLD > 1 else "auto",
        use_distributed_sampler=False,
        callbacks=[NeuronSelection(target={"params": 0.4})],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(data, batch_size=BATCH // WORLD, sampler=mine))
    return model


def transformers() -> nn.Module:
    """Train in the trainer of transformers, which shares out the batches by itself."""
    from transformers import Trainer, TrainingArguments, set_seed

    from thinrnn.integrations.transformers import NeuronSelection

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            add_layers_(self)

        def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
            logits = self.head(self.rnn(self.embedding(input_ids))[0][:, -1])
            if labels is None:
                return {"logits": logits}
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    set_seed(0)
    model = Classifier().double()
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH // WORLD,
        learning_rate=1e-2,
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
        save_strategy="no",
    )
    rows = [{"input_ids": row, "labels": row[-1] % 3} for row in TOKENS]
    trainer = Trainer(model, arguments, train_dataset=rows)
    trainer.add_callback(NeuronSelection(trainer, target={"params": 0.4}))
    trainer.train()
    return model


if __name__ == "__main__":
    which, out = sys.argv[1:]
    trained = {"lightning": lightning, "transformers": transformers}[which]()
    torch.save(trained.state_dict(), Path(out) / f"{which}-{WORLD}-{RANK}.pt")
