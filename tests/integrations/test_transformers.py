"""NeuronSelection in the Trainer of transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thinrnn
from thinrnn.errors import GateError

pytest.importorskip("transformers", reason="needs the extra integrations")
pytest.importorskip("accelerate", reason="needs the extra integrations")

import transformers
from tensorboard_events import scalars

from thinrnn.integrations.transformers import NeuronSelection

EPOCHS = 4
TOKENS = torch.randint(30, (48, 5), generator=torch.Generator().manual_seed(1))
ROWS = [{"input_ids": row, "labels": row[-1] % 3} for row in TOKENS]


def logits_and_loss(model: Any, input_ids: Tensor, labels: Tensor | None) -> dict[str, Tensor]:
    out, _ = model.rnn(model.embedding(input_ids))
    logits = model.head(out[:, -1])
    if labels is None:
        return {"logits": logits}
    return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def add_layers_(model: nn.Module) -> None:
    model.embedding = nn.Embedding(30, 12)
    model.rnn = nn.LSTM(12, 12, num_layers=2, batch_first=True, dropout=0.2)
    model.head = nn.Linear(12, 3)


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        add_layers_(self)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        return logits_and_loss(self, input_ids, labels)


class Config(transformers.PreTrainedConfig):  # type: ignore[misc]
    model_type = "lstm-for-tests"


class Pretrained(transformers.PreTrainedModel):  # type: ignore[misc]
    config_class = Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        add_layers_(self)
        self.post_init()

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        return logits_and_loss(self, input_ids, labels)


def make_model(kind: str) -> nn.Module:
    torch.manual_seed(0)
    return (Plain() if kind == "plain" else Pretrained(Config())).double()


def make_trainer(model: nn.Module, folder: Path, **options: Any) -> Any:
    defaults = {
        "num_train_epochs": EPOCHS,
        "per_device_train_batch_size": 8,
        "learning_rate": 1e-2,
        "weight_decay": 0.01,
        "use_cpu": True,
        "disable_tqdm": True,
        "report_to": "none",
        "save_strategy": "steps",
        "save_steps": 4,
        "logging_strategy": "epoch",
    }
    args = transformers.TrainingArguments(output_dir=str(folder), **defaults | options)
    return transformers.Trainer(model, args, train_dataset=ROWS)


WAYS: dict[str, dict[str, Any]] = {
    "target": {"target": {"params": 0.3, "steps": 14}},
    "l0": {"l0": 1e-3, "gate_lr": 0.1, "start_epoch": 1},
}


@pytest.mark.parametrize(
    ("kind", "way", "step"),
    [("plain", "target", 12), ("pretrained", "target", 8), ("plain", "l0", 16)],
)
def test_a_resumed_training_ends_with_the_same_small_model(
    kind: str, way: str, step: int, tmp_path: Path
) -> None:
    models = [make_model(kind), make_model(kind)]
    for model, start in zip(models, [None, tmp_path / f"checkpoint-{step}"], strict=True):
        trainer = make_trainer(model, tmp_path)
        selection = NeuronSelection(trainer, **WAYS[way])
        trainer.add_callback(selection)
        trainer.train(resume_from_checkpoint=start and str(start))
        assert selection.difference is not None and selection.difference < 1e-10

    expected, found = (model.state_dict() for model in models)
    assert expected.keys() == found.keys()
    assert not any("thinrnn" in name for name in found)
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    logged = set().union(*trainer.state.log_history)
    assert {"thinrnn/params", "thinrnn/kept/rnn.l0"} <= logged
    if way == "target":
        assert thinrnn.count(models[0]).params <= 0.3 * thinrnn.count(make_model(kind)).params


def test_kept_neurons_are_curves_in_tensorboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="pip install tensorboard")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    model = make_model("plain")
    trainer = make_trainer(model, tmp_path, report_to="tensorboard", save_strategy="no")
    trainer.add_callback(NeuronSelection(trainer, target={"params": 0.3, "steps": 14}))
    trainer.train()
    curves = scalars(tmp_path / "board")
    assert [step for step, _ in curves["train/thinrnn/params"]] == [6, 12, 18, 24]
    assert curves["train/thinrnn/params"][-1][1] == thinrnn.count(model).params
    assert "train/thinrnn/kept/rnn.l0" in curves


def test_the_small_model_is_evaluated_and_saved(tmp_path: Path) -> None:
    model = make_model("pretrained")
    trainer = make_trainer(model, tmp_path, save_strategy="no", gradient_accumulation_steps=2)
    trainer.add_callback(NeuronSelection(trainer, target={"params": 0.3}))
    trainer.train()
    assert thinrnn.count(model).params <= 0.3 * thinrnn.count(make_model("pretrained")).params
    assert trainer.predict(ROWS).predictions.shape == (48, 3)
    thinrnn.save(model, tmp_path / "small")
    again = thinrnn.load_(make_model("pretrained"), tmp_path / "small").eval()
    with torch.no_grad():
        assert torch.equal(again(TOKENS)["logits"], model.eval()(TOKENS)["logits"])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"fp16": True}, "bf16=True"),
        ({"load_best_model_at_end": True, "eval_strategy": "steps"}, "larger size"),
    ],
)
def test_what_cannot_work_is_refused(options: Any, reason: str, tmp_path: Path) -> None:
    trainer = make_trainer(make_model("plain"), tmp_path)
    vars(trainer.args).update(options)
    with pytest.raises(GateError, match=reason):
        NeuronSelection(trainer, target={"params": 0.3})
