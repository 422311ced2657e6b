"""NeuronSelection in the Trainer of Lightning, under both of its names."""

import importlib
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import thinrnn
from thinrnn.errors import GateError, PlanError

pytest.importorskip("lightning", reason="needs the extra integrations")

from tensorboard_events import scalars

from thinrnn.integrations.lightning import NeuronSelection

EPOCHS = 4


@pytest.fixture
def pl(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(getattr(request, "param", "lightning.pytorch"))


def make_tagger(pl: Any, *, inside: bool = False) -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(30, 12)
            self.rnn = nn.LSTM(12, 12, bidirectional=True, batch_first=True, dropout=0.0)
            self.head = nn.Linear(24, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.rnn(self.embedding(x))[0])
            return out

    class Tagger(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.net(x)
            return out

        def training_step(self, batch: Any, index: int) -> Tensor:
            if index == 0:  # Lightning's checkpoints have no random state
                torch.manual_seed(self.current_epoch)
            x, y = batch
            out = self.net(x) if inside else self(x)
            loss = nn.functional.cross_entropy(out.flatten(0, 1), y.flatten())
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("valid", self(batch[0]).mean())

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
            return [optimizer], [schedule]

    torch.manual_seed(0)
    return Tagger().double()


def batches() -> Any:
    x = torch.randint(30, (48, 5), generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(x, x % 3), batch_size=8)


def make_trainer(pl: Any, folder: Path, *callbacks: Any, **options: Any) -> Any:
    warnings.simplefilter("ignore")
    defaults = {
        "max_epochs": EPOCHS,
        "accelerator": "cpu",
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 1,
    }
    return pl.Trainer(default_root_dir=folder, callbacks=[*callbacks], **defaults | options)


def fit(pl: Any, folder: Path, model: Any, resume: Path | None = None, **options: Any) -> Any:
    keep = pl.callbacks.ModelCheckpoint(dirpath=folder, save_top_k=-1, filename="{epoch}")
    selection = NeuronSelection(**options)
    logger = pl.loggers.CSVLogger(folder)
    trainer = make_trainer(pl, folder, selection, keep, logger=logger)
    trainer.fit(model, batches(), batches(), ckpt_path=resume)
    return selection, logger


WAYS: dict[str, Any] = {
    "target": {"target": {"params": 0.3, "steps": 14}},
    "part": {"module": "net", "target": {"params": 0.3, "steps": 14}},
    "l0": {"l0": 1e-3, "gate_lr": 0.1, "start_epoch": 1},
}


@pytest.mark.parametrize(
    ("pl", "way"),
    [("lightning.pytorch", "target"), ("pytorch_lightning", "part"), ("lightning.pytorch", "l0")],
    indirect=["pl"],
)
def test_a_resumed_fit_ends_with_the_same_small_model(pl: Any, way: str, tmp_path: Path) -> None:
    whole, resumed = make_tagger(pl), make_tagger(pl)
    selection, logger = fit(pl, tmp_path / "a", whole, **WAYS[way])
    fit(pl, tmp_path / "b", resumed, tmp_path / "a" / "epoch=1.ckpt", **WAYS[way])

    expected, found = whole.state_dict(), resumed.state_dict()
    assert expected.keys() == found.keys()
    assert not any("thinrnn" in name for name in found)
    assert all(torch.equal(found[name], value) for name, value in expected.items())

    assert selection.difference < 1e-10
    header = Path(logger.log_dir, "metrics.csv").read_text().splitlines()[0].split(",")
    rnn = "rnn.l0" if way == "part" else "net.rnn.l0"
    assert {"thinrnn/params", f"thinrnn/kept/{rnn}"} <= set(header)
    if way != "l0":
        full = thinrnn.count(make_tagger(pl)).params
        assert thinrnn.count(whole).params <= 0.3 * full


def test_kept_neurons_are_curves_in_tensorboard(pl: Any, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="pip install tensorboard")
    logger = pl.loggers.TensorBoardLogger(tmp_path, name=None, version="run")
    selection = NeuronSelection(target={"params": 0.3, "steps": 14})
    model = make_tagger(pl)
    make_trainer(pl, tmp_path, selection, logger=logger).fit(model, batches())
    curves = scalars(tmp_path / "run")
    assert [step for step, _ in curves["thinrnn/params"]] == [5, 11, 17, 23]  # once per epoch
    assert curves["thinrnn/params"][-1][1] == thinrnn.count(model).params
    assert curves["thinrnn/kept/net.embedding"][-1][1] == model.net.embedding.embedding_dim


def test_the_trainer_goes_on_with_the_small_model(pl: Any, tmp_path: Path) -> None:
    model = make_tagger(pl)
    selection = NeuronSelection(target={"params": 0.3})  # steps from the length of the training
    trainer = make_trainer(pl, tmp_path, selection, logger=False, enable_checkpointing=False)
    trainer.fit(model, batches())
    assert selection.pruner.is_final
    assert thinrnn.count(model).params <= 0.3 * thinrnn.count(make_tagger(pl)).params
    trainer.validate(model, batches(), verbose=False)
    thinrnn.save(model, tmp_path / "small")
    again = thinrnn.load_(make_tagger(pl), tmp_path / "small")
    x = torch.randint(30, (2, 5))
    assert torch.equal(again.eval()(x), model.eval()(x))


def test_each_of_several_sizes_is_saved(pl: Any, tmp_path: Path) -> None:
    model, rates = make_tagger(pl), []
    selection = NeuronSelection(target={"params": [0.6, 0.3]}, folder=tmp_path / "thin")

    def rate(step: int) -> float:
        rates.append(selection.pruner.rate)
        return rates[-1]

    def configure_optimizers() -> Any:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    model.configure_optimizers = configure_optimizers
    make_trainer(pl, tmp_path, selection, logger=False, enable_checkpointing=False).fit(
        model, batches()
    )
    assert 1.0 in rates[12:] and sum(low < 0.5 for low in rates) >= 4  # down for each of the two
    full = thinrnn.count(make_tagger(pl)).params
    for part in (0.6, 0.3):
        small = thinrnn.load_(make_tagger(pl), tmp_path / "thin" / str(part))
        assert thinrnn.count(small).params <= part * full


def test_a_submodule_that_the_training_step_calls(pl: Any, tmp_path: Path) -> None:
    options: Any = {"logger": False, "enable_checkpointing": False}
    with pytest.raises(PlanError, match="prune the module that the training step calls"):
        selection = NeuronSelection(target={"params": 0.3})
        make_trainer(pl, tmp_path, selection, **options).fit(
            make_tagger(pl, inside=True), batches()
        )
    model = make_tagger(pl, inside=True)
    selection = NeuronSelection(module="net", target={"params": 0.3})
    make_trainer(pl, tmp_path, selection, **options).fit(model, batches())
    assert thinrnn.count(model).params <= 0.3 * thinrnn.count(make_tagger(pl)).params


def test_a_scaled_loss_is_refused(pl: Any, tmp_path: Path) -> None:
    trainer = make_trainer(pl, tmp_path, NeuronSelection(l0=1e-3), precision="bf16-true")
    trainer.strategy.precision_plugin.precision = "16-mixed"  # torch has none of it on a CPU
    with pytest.raises(GateError, match="bf16-mixed"):
        trainer.fit(make_tagger(pl), batches())
