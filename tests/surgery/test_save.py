"""A small model on disk: what comes back is what went in, and what is damaged says so."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from grids import RAW, Net, Shape
from torch import Tensor, nn

import thinrnn
from thinrnn import _files as files
from thinrnn._surgery.provenance import record_of
from thinrnn.errors import FolderError, GateError, PlanError


class Tagger(nn.Module):
    """Tied weights, a frozen table, buffers of several types, a normalisation."""

    def __init__(self, words: int = 9, hidden: int = 6) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, 6)
        self.known = nn.Embedding.from_pretrained(torch.randn(words, 4), freeze=True)
        self.rnn = nn.GRU(10, hidden, num_layers=2, batch_first=True)
        self.norm = nn.BatchNorm1d(hidden)
        self.back = nn.Linear(hidden, 6)
        self.decoder = nn.Linear(6, words)
        self.decoder.weight = self.embedding.weight
        self.register_buffer("calls", torch.tensor(3))
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("unsaved", torch.randn(2), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        e = torch.cat([self.embedding(x), self.known(x)], -1)
        h = self.norm(self.rnn(e)[0].transpose(1, 2)).transpose(1, 2)
        return self.decoder(self.back(h))


X = torch.arange(8).view(2, 4)


def gated(seed: int = 0, **options: Any) -> nn.Module:
    torch.manual_seed(seed)
    model = Tagger(**options)
    model(X)  # so that the running statistics are not those of a new model
    thinrnn.attach_(model.eval(), thinrnn.find_groups(model, X))
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.randn(gate.size) * 2 + 0.5
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return thinrnn.save(thinrnn.compact(gated()), tmp_path / "small")


def test_everything_comes_back(folder: Path) -> None:
    model = gated()
    small = thinrnn.compact(model)
    torch.manual_seed(5)
    fresh = Tagger()
    unsaved = fresh.unsaved.clone()
    parameters = [id(p) for p in fresh.parameters()]
    loaded = thinrnn.load_(fresh, folder)
    assert loaded is fresh
    assert [id(p) for p in loaded.parameters()] == parameters
    assert loaded.state_dict().keys() == small.state_dict().keys()
    for name, tensor in small.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
        assert loaded.state_dict()[name].dtype == tensor.dtype
    assert loaded.decoder.weight is loaded.embedding.weight
    assert not loaded.known.weight.requires_grad
    assert loaded.embedding.weight.requires_grad
    assert torch.equal(loaded.unsaved, unsaved)
    assert loaded.rnn.flatten_parameters() is None
    assert torch.equal(loaded.eval()(X), small(X))
    assert thinrnn.verify(model, loaded, X) < 1e-5
    assert record_of(loaded) == record_of(small)


def test_a_tied_weight_is_stored_once(folder: Path) -> None:
    stored = safetensors.torch.load_file(folder / "model.safetensors")
    assert "embedding.weight" in stored
    assert "decoder.weight" not in stored


def test_tensors_that_share_memory_but_differ_are_both_stored(tmp_path: Path) -> None:
    class Twice(Net):
        def __init__(self) -> None:
            super().__init__(Shape(front="nothing"))
            square = torch.randn(3, 3)
            self.register_buffer("one", square)
            self.register_buffer("other", square.T)

    torch.manual_seed(0)
    model, x = Twice().eval(), torch.randn(3, 3, 5)
    thinrnn.attach_(model, thinrnn.find_groups(model, x))
    small = thinrnn.compact(model)
    loaded = thinrnn.load_(Twice(), thinrnn.save(small, tmp_path))
    assert torch.equal(loaded.one, small.one)
    assert torch.equal(loaded.other, small.one.T)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_types_stay(tmp_path: Path, dtype: torch.dtype) -> None:
    small = thinrnn.compact(gated().to(dtype))
    thinrnn.save(small, tmp_path)
    loaded = thinrnn.load_(Tagger().to(dtype), tmp_path)
    for name, tensor in small.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    assert {p.dtype for p in thinrnn.load_(Tagger(), tmp_path).parameters()} == {torch.float32}


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_fewer_bits(tmp_path: Path, precision: Any) -> None:
    small = thinrnn.compact(gated())
    with torch.no_grad():
        small.embedding.weight[0] = 0  # a row without a scale
        small.known.weight[1, 0] = 1e6  # more than float16 can hold
        small.norm.running_var[0] = 1e6
    thinrnn.save(small, tmp_path / "few", precision=precision)
    thinrnn.save(small, tmp_path / "all")
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("few", "all")]
    assert sizes[0] < sizes[1]
    loaded = thinrnn.load_(Tagger(), tmp_path / "few")
    for name, tensor in small.state_dict().items():
        after = loaded.state_dict()[name]
        assert after.dtype == tensor.dtype
        if not tensor.is_floating_point():
            assert torch.equal(after, tensor)
        elif precision == "float16":
            torch.testing.assert_close(after, tensor, rtol=2**-11, atol=2**-25)
        elif tensor.dim() > 1:
            step = tensor.abs().flatten(1).amax(1) / 127
            error = (after - tensor).abs().flatten(1).amax(1)
            assert (error <= step * (0.5 + 1e-4)).all()
        else:
            assert torch.equal(after, tensor)
    assert not loaded.embedding.weight[0].any()
    assert loaded.state_dict()["norm.running_var"][0] == 1e6


def test_infinite_weights_are_kept_as_they_are(tmp_path: Path) -> None:
    small = thinrnn.compact(gated())
    with torch.no_grad():
        small.back.weight[0, 0] = -torch.inf
    for precision in ("float16", "int8"):
        thinrnn.save(small, tmp_path, precision=precision)
        assert torch.equal(thinrnn.load_(Tagger(), tmp_path).back.weight, small.back.weight)


def test_made_small_twice(tmp_path: Path) -> None:
    shape = Shape(front="linear", layers=3, hidden=6, inputs=6, state="given")
    arguments = shape.arguments()
    model = shape.model().eval()
    inputs = list(range(RAW))
    for gone in (0, 1):
        thinrnn.attach_(model, thinrnn.find_groups(model, arguments))
        for gate in thinrnn.gates(model).values():
            is_gone = torch.arange(gate.size) % 3 == gone
            gate.log_alpha = torch.where(is_gone & (torch.rand(gate.size) < 0.8), -9.0, 1.0)
        kept = thinrnn.gates(model)["x"].keep.tolist()
        inputs = [i for i, is_kept in zip(inputs, kept, strict=True) if is_kept]
        small = thinrnn.compact(model)
        torch.testing.assert_close(small(*arguments)[0], model(*arguments)[0])
        assert thinrnn.kept_inputs(small) == {"x": inputs}
        loaded = thinrnn.load_(shape.model(1), thinrnn.save(small, tmp_path)).eval()
        assert torch.equal(loaded(*arguments)[0], small(*arguments)[0])
        assert thinrnn.kept_inputs(loaded) == {"x": inputs}
        model = small


def test_a_loaded_model_can_be_saved_and_pruned_again(folder: Path, tmp_path: Path) -> None:
    loaded = thinrnn.load_(Tagger(), folder).eval()
    again = thinrnn.load_(Tagger(), thinrnn.save(loaded, tmp_path / "again")).eval()
    assert torch.equal(again(X), loaded(X))
    thinrnn.attach_(again, thinrnn.find_groups(again, X))


def test_nothing_is_pickled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("pickle was used")

    for module, name in [(pickle, "load"), (pickle, "loads"), (torch, "load")]:
        monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(pickle, "Unpickler", refuse)
    thinrnn.load_(Tagger(), folder)
    assert sorted(path.name for path in folder.iterdir()) == ["model.safetensors", "thinrnn.json"]
    about = json.loads((folder / "thinrnn.json").read_text())
    assert about["model"] == "Tagger"
    assert about["thinrnn"] == thinrnn.__version__


def broken(name: str, content: bytes | None) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)

    return spoil


def torn(name: str) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size // 2)


def flipped(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def without(key: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "thinrnn.json"
        about = json.loads(path.read_text())
        del about[key]
        path.write_text(json.dumps(about))

    return spoil


def with_(key: str, value: Any) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "thinrnn.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))

    return spoil


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no folder": (shutil.rmtree, "cannot read .*small"),
    "no JSON": (broken("thinrnn.json", None), "cannot read .*small"),
    "no weights": (broken("model.safetensors", None), "cannot read .*No such file"),
    "torn JSON": (torn("thinrnn.json"), "damaged: it is not JSON"),
    "torn weights": (torn("model.safetensors"), "damaged"),
    "a flipped bit": (flipped, "damaged"),
    "weights of zeros": (broken("model.safetensors", b"\0" * 100), "damaged"),
    "binary JSON": (broken("thinrnn.json", b"\xff\xfe\0"), "damaged: it is not JSON"),
    "another JSON": (broken("thinrnn.json", b'{"a": 1}'), "not written by thinrnn.save"),
    "a list": (broken("thinrnn.json", b"[1]"), "damaged: the file: .*an object"),
    "a later format": (with_("format", 99), "format is unknown"),
    "no plan": (without("plan"), "damaged: plan: field required"),
    "no tensors": (without("tensors"), "damaged: tensors: field required"),
    "no checksum": (without("sha256"), "damaged: sha256: field required"),
    "strange kept": (with_("kept", {"rnn.l0": ["x"]}), "damaged"),
    "strange plan": (with_("plan", {"thinrnn_plan": 1}), "damaged: plan.groups: field required"),
    "strange tensors": (with_("tensors", {"a": {"dtype": "load"}}), "damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_reported(folder: Path, damage: str) -> None:
    spoil, message = DAMAGES[damage]
    spoil(folder)
    model = Tagger()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(FolderError, match=message) as caught:
        thinrnn.load_(model, folder)
    assert str(folder) in str(caught.value)
    assert all(torch.equal(model.state_dict()[name], old) for name, old in before.items())


def test_another_model_is_refused(folder: Path) -> None:
    with pytest.raises(FolderError, match=r"does not fit this Net.*does not have"):
        thinrnn.load_(Shape().model(), folder)
    with pytest.raises(FolderError, match=r"does not fit this Tagger.*arguments it had"):
        thinrnn.load_(Tagger(hidden=5), folder)
    with pytest.raises(FolderError, match=r"'embedding\.weight' was saved with shape"):
        thinrnn.load_(Tagger(words=10), folder)
    larger, fewer = Tagger(), Tagger()
    larger.extra = nn.Linear(2, 2)
    with pytest.raises(FolderError, match=r"has 'extra\.weight', which was not saved"):
        thinrnn.load_(larger, folder)
    del fewer._buffers["calls"]
    with pytest.raises(FolderError, match="'calls' was saved, but the model has no"):
        thinrnn.load_(fewer, folder)


def test_models_that_are_not_dense_or_not_small(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(GateError, match="detach_"):
        thinrnn.load_(gated(), folder)
    with pytest.raises(FolderError, match="small already"):
        thinrnn.load_(thinrnn.load_(Tagger(), folder), folder)
    with pytest.raises(GateError, match=r"save\(compact\(model\), folder\)"):
        thinrnn.save(gated(), tmp_path)
    with pytest.raises(PlanError, match=r"Tagger was not made by compact"):
        thinrnn.save(Tagger(), tmp_path)
    with pytest.raises(FolderError, match=r"'int4'.*'int8'"):
        thinrnn.save(thinrnn.compact(gated()), tmp_path, precision="int4")  # type: ignore[arg-type]
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match=r"cannot write into .*file"):
        thinrnn.save(thinrnn.compact(gated()), tmp_path / "file")


def test_an_rnn_that_would_have_to_become_a_stack(tmp_path: Path) -> None:
    rnn, x = nn.LSTM(3, 4, num_layers=2), torch.randn(5, 2, 3)
    thinrnn.attach_(rnn, thinrnn.find_groups(rnn, x))
    thinrnn.gates(rnn)["l0"].log_alpha = torch.tensor([2.0, -9, 2, 2])
    small = thinrnn.compact(rnn.eval())
    assert isinstance(small, thinrnn.RNNStack)
    torch.testing.assert_close(small(x)[0], rnn(x)[0])
    with pytest.raises(FolderError, match="inside a module of your own"):
        thinrnn.load_(nn.LSTM(3, 4, num_layers=2), thinrnn.save(small, tmp_path))


def test_state_that_is_no_tensor_is_refused(tmp_path: Path) -> None:
    class WithExtra(Net):
        def get_extra_state(self) -> Any:
            return {"words": 9}

        def set_extra_state(self, state: Any) -> None:
            pass

    model, x = WithExtra(Shape(front="nothing")), torch.randn(3, 3, 5)
    thinrnn.attach_(model, thinrnn.find_groups(model, x))
    with pytest.raises(FolderError, match=r"'_extra_state'.*dict.*tensors only"):
        thinrnn.save(thinrnn.compact(model), tmp_path)


@pytest.mark.parametrize("at", ["fsync", "write_text"])
def test_an_interrupted_write_keeps_the_old_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    if at == "write_text":  # the weights are written by then, the JSON is not
        monkeypatch.setattr(Path, "write_text", stop)
    else:
        monkeypatch.setattr(files.os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        thinrnn.save(thinrnn.compact(gated(seed=1)), folder)
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    thinrnn.load_(Tagger(), folder)


def test_a_disk_that_is_full_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(FolderError, match="No space left"):
        thinrnn.save(thinrnn.compact(gated()), folder)
    monkeypatch.undo()
    assert len(list(folder.iterdir())) == 2
    thinrnn.load_(Tagger(), folder)


def test_saving_again_replaces(folder: Path) -> None:
    small = thinrnn.compact(gated(seed=1))
    thinrnn.save(small, str(folder))
    assert torch.equal(thinrnn.load_(Tagger(), str(folder)).eval()(X), small(X))
    mode = (folder / "model.safetensors").stat().st_mode & 0o777
    (folder / "plain").touch()
    assert mode == (folder / "plain").stat().st_mode & 0o777
