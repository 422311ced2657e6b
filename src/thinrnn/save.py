"""save and load_: a small model as safetensors and JSON, no pickles.

    folder/model.safetensors   the tensors, in float32, float16, or 8 bits with a scale per row
    folder/thinrnn.json        the plan, the neurons that were kept, how each tensor is stored
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from thinrnn.attach import Attached, attach_, attached, is_attached
from thinrnn.errors import FolderError, GateError, PlanError
from thinrnn.files import write_safely
from thinrnn.gate import Fixed
from thinrnn.hooks import remove_hooks_
from thinrnn.pick import make_picks, set_picks_
from thinrnn.plan import Plan
from thinrnn.record import Record, record_of, set_record_
from thinrnn.shrink import cut_
from thinrnn.version import __version__

Precision = Literal["float32", "float16", "int8"]
FORMAT = 1
SCALE = ":scale"


def save(small: nn.Module, folder: str | Path, *, precision: Precision = "float32") -> Path:
    """Write a small model into a folder and return the folder.

    `precision` is how floating-point tensors are stored: "float32" as they are (float64 too),
    "float16", or "int8": matrices in 8 bits with one scale per row, the rest in float32.
    """
    if precision not in ("float32", "float16", "int8"):
        raise FolderError(f"precision='{precision}': it is 'float32', 'float16' or 'int8'.")
    if is_attached(small):
        raise GateError("this model has gates; save(compact(model), folder) saves the small one.")
    record = record_of(small)
    folder = Path(folder)
    stored: dict[str, Tensor] = {}
    tensors: dict[str, dict[str, Any]] = {}
    first_name: dict[tuple[int, torch.Size, int], str] = {}
    for name, tensor in small.state_dict().items():
        key = (tensor.data_ptr(), tensor.shape, tensor.storage_offset())
        if tensor.numel() and key in first_name:
            tensors[name] = {"same_as": first_name[key]}
            continue
        first_name[key] = name
        tensors[name] = {"dtype": str(tensor.dtype).removeprefix("torch.")}
        stored |= _stored(name, tensor.detach().cpu(), precision)
    path = folder / "model.safetensors"
    write_safely(path, lambda temporary: save_file(stored, temporary))
    about = {
        "thinrnn": __version__,
        "format": FORMAT,
        "model": type(small).__name__,
        "precision": precision,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "kept": record.kept,
        "inputs": record.inputs,
        "tensors": tensors,
        "plan": json.loads(record.plan.to_json()),
    }
    text = json.dumps(about, indent=1)
    write_safely(folder / "thinrnn.json", lambda temporary: _write_text(temporary, text))
    return folder


def load_(model: nn.Module, folder: str | Path) -> nn.Module:
    """Make a freshly built dense model of the same class the small one that was saved.

    Changes the model in place and returns it.
    """
    folder = Path(folder)
    about = _read_about(folder)
    record = Record(
        Plan.from_json(json.dumps(about["plan"])), about["kept"], about.get("inputs", "same")
    )
    if is_attached(model):
        raise GateError("load_ wants a freshly built model; this one has gates: detach_ them.")
    state = _read_tensors(folder, about)
    try:
        attach_(model, record.plan, gate=Fixed())
        cut_(model, record.kept)
    except PlanError as error:
        if is_attached(model):
            attached(model).remove()
        raise FolderError(f"'{folder}' holds another model than this one: {error}") from error
    _leave_small_(model, attached(model), record)
    result = model.load_state_dict(state, strict=False)
    if result.missing_keys or result.unexpected_keys:
        wrong = ", ".join([*result.missing_keys, *result.unexpected_keys][:5])
        raise FolderError(f"'{folder}' holds another model than this one: {wrong} do not match.")
    return model


def _leave_small_(model: nn.Module, gated: Attached, record: Record) -> None:
    """Take the gates off a cut model and leave just the picks that it needs."""
    own = list(gated.picks.values())
    gated.remove()
    remove_hooks_(model, lambda hook: any(hook is pick for pick in own))
    keep = {name: torch.tensor(kept) for name, kept in record.kept.items()}
    full = record.inputs == "same"
    set_picks_(model, make_picks(gated.layers, gated.first_plan, keep, full_inputs=full))
    set_record_(model, record)


def _stored(name: str, tensor: Tensor, precision: Precision) -> dict[str, Tensor]:
    tensor = tensor.contiguous()
    if not tensor.is_floating_point() or precision == "float32":
        return {name: tensor.clone()}
    if precision == "float16":
        return {name: tensor.half()}
    if tensor.dim() < 2:
        return {name: tensor.float().clone()}
    rows = tensor.float().reshape(len(tensor), -1)
    scale = (rows.abs().amax(1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
    codes = (rows / scale[:, None]).round().clamp(-127, 127).to(torch.int8)
    return {name: codes.view(tensor.shape), name + SCALE: scale}


def _read_about(folder: Path) -> dict[str, Any]:
    path = folder / "thinrnn.json"
    try:
        about = json.loads(path.read_text())
    except OSError as error:
        raise FolderError(f"no saved model in '{folder}': {error.strerror}: {path.name}") from error
    except ValueError as error:
        raise FolderError(f"'{path}' is not JSON: {error}") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise FolderError(f"'{path}' was not written by thinrnn.save in a format known here.")
    return about


def _read_tensors(folder: Path, about: dict[str, Any]) -> dict[str, Tensor]:
    path = folder / "model.safetensors"
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest != about["sha256"]:
            raise FolderError(f"'{path}' is damaged or of another save than thinrnn.json.")
        with safe_open(path, framework="pt") as file:
            stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise FolderError(f"cannot read '{path}': {error.strerror}") from error
    except SafetensorError as error:
        raise FolderError(f"'{path}' is not a safetensors file: {error}") from error
    state: dict[str, Tensor] = {}
    for name, entry in about["tensors"].items():
        if "same_as" in entry:
            state[name] = state[entry["same_as"]]
            continue
        tensor = stored[name]
        if name + SCALE in stored:
            scale = stored[name + SCALE].view(-1, *[1] * (tensor.dim() - 1))
            tensor = tensor.float() * scale
        state[name] = tensor.to(getattr(torch, entry["dtype"]))
    return state


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
