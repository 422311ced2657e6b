"""save and load_: a small model as safetensors and JSON, no pickles.

folder/model.safetensors   the tensors, in float32, float16, or 8 bits with a scale per row
folder/thinrnn.json        the plan, the neurons that were kept, how each tensor is stored
"""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from thinrnn import __version__
from thinrnn._files import memory, open_regular, parse_json, read_bytes, write_together
from thinrnn._gates.attach import attach_, attached, detach_, is_attached
from thinrnn._gates.attached import Attached
from thinrnn._gates.estimators import Fixed
from thinrnn._model.patching import remove_hooks_
from thinrnn._surgery.full_width_inputs import add_hooks_, full_width_inputs
from thinrnn._surgery.provenance import Record, find_record, record_of, set_record_
from thinrnn._surgery.shrink import cut_
from thinrnn.errors import FolderError, GateError, PlanError

if TYPE_CHECKING:
    from thinrnn._file_formats import RecordFile, SavedModel

Precision = Literal["float32", "float16", "int8"]
FORMAT = 1
SCALE = ":scale"


def save(small: nn.Module, folder: str | Path, *, precision: Precision = "float32") -> Path:
    """Write a small model into a folder: safetensors and JSON, no pickles.

    Args:
        small: A model from `compact` or `load_`.
        folder: Where to write `model.safetensors` and `thinrnn.json`; made if it is not there.
        precision: How floating-point tensors are stored: "float32" as they are (float64 too),
            "float16", or "int8", which is matrices in 8 bits with one scale per row and the rest
            in float32.

    Returns:
        The folder.

    Raises:
        GateError: The model has gates.
        PlanError: The model was not made by thinrnn.
        FolderError: The folder cannot be written, or `precision` is none of the three.

    Example:
        >>> from tempfile import mkdtemp
        >>> model, x = nn.LSTM(3, 8, num_layers=2), torch.randn(5, 2, 3)
        >>> _ = thinrnn.attach_(model, thinrnn.find_groups(model, x))
        >>> folder = thinrnn.save(thinrnn.compact(model), mkdtemp())
        >>> sorted(path.name for path in folder.iterdir())
        ['model.safetensors', 'thinrnn.json']
    """
    if precision not in ("float32", "float16", "int8"):
        raise FolderError(f"precision='{precision}': write 'float32', 'float16' or 'int8'.")
    if is_attached(small):
        raise GateError("this model has gates; save(compact(model), folder) saves the small one.")
    record = record_of(small)
    folder = Path(folder)
    stored, tensors = _stored_state(small, precision)
    about = {
        "thinrnn": __version__,
        "format": FORMAT,
        "model": type(small).__name__,
        "precision": precision,
        "tensors": tensors,
        **_record_data(record),
    }

    def write_tensors(path: Path) -> None:
        save_file(stored, path)
        about["sha256"] = _digest(path)

    def write_about(path: Path) -> None:
        path.write_text(json.dumps(about, indent=1), encoding="utf-8")

    try:
        write_together(
            {folder / "model.safetensors": write_tensors, folder / "thinrnn.json": write_about}
        )
    except (OSError, SafetensorError) as error:  # safetensors has an error of its own
        reason = getattr(error, "strerror", None) or error
        raise FolderError(
            f"cannot write into '{folder}': {reason}. A model that was there before is unchanged."
        ) from error
    return folder


def load_(model: nn.Module, folder: str | Path) -> nn.Module:
    """Turn a freshly built dense model into the small one that was saved, in place.

    Types, devices and `requires_grad` stay those of the given model, as with `load_state_dict`.

    Args:
        model: A new model of the same class, built with the arguments it had when it was pruned.
        folder: What `save` wrote.

    Returns:
        The same model, small.

    Raises:
        GateError: The model has gates.
        FolderError: The folder cannot be read, or belongs to another model.

    Example:
        >>> from tempfile import mkdtemp
        >>> model, x = nn.LSTM(3, 8, num_layers=2), torch.randn(5, 2, 3)
        >>> _ = thinrnn.attach_(model, thinrnn.find_groups(model, x))
        >>> small = thinrnn.compact(model)
        >>> loaded = thinrnn.load_(nn.LSTM(3, 8, num_layers=2), thinrnn.save(small, mkdtemp()))
        >>> torch.equal(loaded(x)[0], small(x)[0])
        True
    """
    folder = Path(folder)
    if is_attached(model):
        raise GateError("load_ needs a freshly built model; this one has gates: detach_ them.")
    if find_record(model) is not None:
        raise FolderError("load_ needs a freshly built dense model; this one is small already.")
    record, state = _read(folder)
    try:
        _cut_as_recorded_(model, record)
        _check_fit(model.state_dict(), state)
    except PlanError as error:
        raise FolderError(
            f"'{folder}' does not fit this {type(model).__name__}: {error} "
            "Build the model with the arguments it had when it was pruned."
        ) from error
    model.load_state_dict(state)
    check_numbers(model, folder / "model.safetensors")
    return model


def _check_fit(here: dict[str, Tensor], stored: dict[str, Tensor]) -> None:
    for name in [*here, *stored]:
        if name not in stored:
            raise PlanError(f"the model has '{name}', which was not saved.")
        if name not in here:
            raise PlanError(f"'{name}' was saved, but the model has no such tensor.")
        if here[name].shape != stored[name].shape:
            raise PlanError(
                f"'{name}' was saved with shape {tuple(stored[name].shape)}, and the model has "
                f"{tuple(here[name].shape)} there after the same cuts."
            )


def _cut_as_recorded_(model: nn.Module, record: Record) -> None:
    if record.before is not None:
        _cut_as_recorded_(model, record.before)
    attach_(model, record.plan, gate=Fixed())
    try:
        cut_(model, record.kept)
    except PlanError:
        detach_(model)
        raise
    _leave_small_(model, attached(model), record)


def _leave_small_(model: nn.Module, gated: Attached, record: Record) -> None:
    """Take the gates off a cut model, and leave the hooks that the small model needs."""
    own = list(gated.input_hooks.values())
    gated.remove()
    remove_hooks_(model, lambda hook: any(hook is other for other in own))
    keep = {name: torch.tensor(kept) for name, kept in record.kept.items()}
    full = record.inputs == "same"
    plan = gated.first_plan
    add_hooks_(model, full_width_inputs(model, gated.layers, plan, keep, full_inputs=full))
    set_record_(model, record)


def _stored_state(
    small: nn.Module, precision: Precision
) -> tuple[dict[str, Tensor], dict[str, dict[str, str]]]:
    """Return the tensors to write, and for each tensor of the model its type or its twin."""
    stored: dict[str, Tensor] = {}
    tensors: dict[str, dict[str, str]] = {}
    first_name: dict[tuple[Any, ...], str] = {}
    for name, tensor in small.state_dict().items():
        if not isinstance(tensor, Tensor):
            raise FolderError(
                f"'{name}' in the model's state_dict is a {type(tensor).__name__}; a saved model "
                "holds tensors only. Keep it in a buffer, or store it in a file of your own."
            )
        where = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and where in first_name:
            tensors[name] = {"same_as": first_name[where]}
            continue
        first_name[where] = name
        tensors[name] = {"dtype": str(tensor.dtype).removeprefix("torch.")}
        stored |= _stored(name, tensor.detach().cpu().contiguous(), precision)
    return stored, tensors


def _stored(name: str, tensor: Tensor, precision: Precision) -> dict[str, Tensor]:
    as_it_is = not tensor.is_floating_point() or not tensor.isfinite().all()
    if as_it_is or precision == "float32" or not tensor.numel():
        return {name: tensor.clone()}
    if precision == "float16":
        half = tensor.half()
        return {name: half if half.isfinite().all() else tensor.float()}
    if tensor.dim() < 2:
        return {name: tensor.float().clone()}
    rows = tensor.float().flatten(1)
    scale = (rows.abs().amax(1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
    codes = (rows / scale[:, None]).round().clamp(-127, 127).to(torch.int8)
    return {name: codes.view(tensor.shape), name + SCALE: scale}


def _read(folder: Path) -> tuple[Record, dict[str, Tensor]]:
    from thinrnn._file_formats import SavedFormat, SavedModel

    path = folder / "thinrnn.json"
    data = read_bytes(path)
    if parse_json(data, SavedFormat, path).format != FORMAT:
        raise FolderError(
            f"'{path}' was not written by thinrnn.save, or by a version whose format is unknown "
            f"here (this is thinrnn {__version__}, format {FORMAT})."
        )
    about = parse_json(data, SavedModel, path)
    try:
        record = _record_from(about)
    except PlanError as error:  # two groups of one name
        raise FolderError(f"'{path}' is damaged: {error}") from None
    return record, _read_tensors(folder / "model.safetensors", about)


def _read_tensors(path: Path, about: "SavedModel") -> dict[str, Tensor]:
    stored = read_tensors(path)  # first, because it compares all sizes with that of the file
    if _digest(path) != about.sha256:
        raise FolderError(f"'{path}' is damaged, or does not belong to the thinrnn.json beside it.")
    state: dict[str, Tensor] = {}
    for name, entry in about.tensors.items():
        known = stored if entry.same_as is None else state
        other = entry.same_as or name
        if other not in known:
            raise FolderError(f"'{path}' is damaged: it has no tensor {other!a}.")
        tensor = known[other]
        if entry.dtype is not None:
            if name + SCALE in stored:
                tensor = _scaled(path, name, tensor, stored[name + SCALE])
            dtype = getattr(torch, entry.dtype)
            if tensor.is_complex() and not dtype.is_complex:
                raise FolderError(f"'{path}' is damaged: {other!a} is complex, not {entry.dtype}.")
            tensor = tensor.to(dtype)
        state[name] = tensor
    return state


def _scaled(path: Path, name: str, codes: Tensor, scale: Tensor) -> Tensor:
    """Return a matrix from its codes in 8 bits and the scale of each row."""
    if not codes.dim() or scale.shape != codes.shape[:1]:
        raise FolderError(f"'{path}' is damaged: {name!a} does not have a scale for each row.")
    return codes.float() * scale.view(-1, *[1] * (codes.dim() - 1))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, whose own reader checks every size.

    Raises:
        FolderError: It is not a safetensors file, or cannot be read.
    """
    open_regular(path, most=memory()).close()
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise FolderError(f"'{path}' is damaged: it is not a safetensors file: {error}.") from None


def check_numbers(model: nn.Module, path: Path) -> None:
    """Raise if a parameter of a loaded model holds not a single number.

    A few infinities may be meant, in a mask for instance; buffers may be all infinite.
    """
    for name, parameter in model.named_parameters():
        if parameter.numel() and not parameter.isfinite().any():
            raise FolderError(
                f"'{path}' is damaged: every value of {name!a} is NaN or infinite. Take the "
                "model of an earlier checkpoint."
            )


def _digest(path: Path) -> str:
    with open_regular(path, most=memory()) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _record_data(record: Record) -> dict[str, Any]:
    return {
        "kept": record.kept,
        "inputs": record.inputs,
        "plan": json.loads(record.plan.to_json()),
        "before": None if record.before is None else _record_data(record.before),
    }


def _record_from(data: "RecordFile") -> Record:
    return Record(
        plan=data.plan.plan(),
        kept=dict(data.kept),
        inputs=data.inputs,
        before=None if data.before is None else _record_from(data.before),
    )
