"""Hostile folders, generated from a good one: every field and every file changed in many ways."""

import copy
import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Change = Callable[[Path], None]
DEEP = "@deep@"  # replaced in the text by lists, one inside the other
RAW = {"@nan@": "NaN", "@infinite@": "-Infinity", "@huge@": "1" * 5000}  # no value of json.dumps
VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "a negative number": -1,
    "zero": 0,
    "a fraction": 0.5,
    "10^12": 10**12,
    "10^19": 10**19,
    "5,000 digits": "@huge@",
    "NaN": "@nan@",
    "-Infinity": "@infinite@",
    "a text": "\x1b[31mx\u202e<script>alert(1)</script>\0",
    "a long text": "x" * 100_000,
    "an empty list": [],
    "an empty object": {},
    "a list of lists": [[1], [2]],
    "deep lists": DEEP,
}
COMMANDS = {
    "config.json": ("list", "report", "eval", "generate", "compact", "bench"),
    "dense.json": ("list", "report", "eval", "bench"),
    "small.json": ("list", "report", "eval", "generate"),
    "control.json": ("list", "report"),
    "metrics.jsonl": ("report", "train --resume"),
    "pattern.json": ("report",),
    "plan.json": ("compact", "train --resume"),
    "model/recipe.json": ("generate", "eval", "bench", "export"),
    "model/vocabulary.json": ("generate", "eval", "bench", "export"),
    "model/thinrnn.json": ("generate", "load_", "eval", "load_", "bench", "export"),
    "model/model.safetensors": ("generate", "load_", "eval", "load_", "bench", "export"),
    "dense/recipe.json": ("eval --kind dense", "prune"),
    "dense/vocabulary.json": ("eval --kind dense", "prune"),
    "dense/model.safetensors": ("eval --kind dense", "prune"),
    "CHECKPOINT/manifest.json": ("compact", "train --resume"),
    "CHECKPOINT/state.json": ("compact", "train --resume"),
    "CHECKPOINT/tensors.safetensors": ("compact", "train --resume"),
}


@dataclass(frozen=True)
class Case:
    """One change of one file, and the command that then reads the folder."""

    name: str
    command: str
    change: Change


def corpus(run: Path, name: str, *, sample: int) -> list[Case]:
    """Return a sample of the cases of one file, the same at each call."""
    commands = COMMANDS[name]
    changes = [*file_changes(name), *content_changes(name, real(run, name))]
    changes = random.Random(name).sample(changes, min(sample, len(changes)))
    return [
        Case(f"{name}: {what}", commands[number % len(commands)], change)
        for number, (what, change) in enumerate(changes)
    ]


def real(run: Path, name: str) -> Path:
    """Return the file of a run; CHECKPOINT is its newest checkpoint."""
    newest = sorted((run / "checkpoints").glob("gated-*"))[-1]
    return run / name.replace("CHECKPOINT", str(newest.relative_to(run)))


def file_changes(name: str) -> Iterator[tuple[str, Change]]:
    """Yield what can happen to a file of a run."""
    for what, damage in damages():
        yield what, lambda run, damage=damage: damage(real(run, name))
    for other in ("config.json", "small.json", "model/model.safetensors", "plan.json"):
        if other != name:

            def swap(run: Path, other: str = other) -> None:
                file = real(run, name)
                shutil.copyfile(real(file_run(file, name), other), file)

            yield f"is a copy of {other}", swap


def damages() -> Iterator[tuple[str, Callable[[Path], object]]]:
    """Yield what can happen to any file."""

    def put(data: bytes) -> Callable[[Path], object]:
        return lambda file: file.write_bytes(data)

    def link(target: str) -> Callable[[Path], object]:
        def change(file: Path) -> None:
            file.unlink()
            file.symlink_to(target if target != "itself" else file.name)

        return change

    def fifo(file: Path) -> None:
        file.unlink()
        os.mkfifo(file)

    def folder(file: Path) -> None:
        file.unlink()
        file.mkdir()

    def part(numerator: int) -> Callable[[Path], object]:
        return lambda file: file.write_bytes(
            file.read_bytes()[: file.stat().st_size * numerator // 8]
        )

    def flip(place: int) -> Callable[[Path], object]:
        def change(file: Path) -> None:
            data = bytearray(file.read_bytes())
            data[len(data) * place // 16] ^= 1 << place % 8
            file.write_bytes(data)

        return change

    def sparse(file: Path) -> None:
        with file.open("r+b") as opened:
            opened.truncate(1 << 40)

    yield "missing", Path.unlink
    yield "empty", put(b"")
    yield "one zero byte", put(b"\0")
    yield "no UTF-8", put(b'{"a": "\xff\xfe"}')
    yield "a byte order mark", put(b"\xef\xbb\xbf{}")
    yield "200,000 lists", put(b"[" * 200_000)
    yield "200,000 objects", put(b'{"a":' * 200_000 + b"1" + b"}" * 200_000)
    for text in ("null", "true", "1", '"x"', "[]", "{}", "NaN", "1e999", "[1, 2]", '{"a": 1}'):
        yield f"holds {text}", put(text.encode() + b"\n")
    for target in ("itself", "/dev/zero", "/dev/full", "/nowhere", "/", "/proc/self/mem"):
        yield f"a link to {target}", link(target)
    yield "a pipe", fifo
    yield "a folder", folder
    yield "a terabyte", sparse
    for number in (1, 4, 7):
        yield f"cut at {number}/8", part(number)
    for place in range(0, 16, 3):
        yield f"a bit flipped at {place}/16", flip(place)


def file_run(file: Path, name: str) -> Path:
    """Return the run folder that a file of this name is in."""
    return file.parents[len(Path(name).parts) - 1 + name.startswith("CHECKPOINT")]


def content_changes(name: str, file: Path) -> Iterator[tuple[str, Change]]:
    """Yield changes that keep a file readable: wrong fields of JSON, wrong tensors."""
    if file.suffix == ".safetensors":
        yield from tensor_changes(name)
        return
    text = file.read_text()
    lines = text.splitlines() if file.suffix == ".jsonl" else [text]
    chosen = {json.loads(line).get("event"): i for i, line in enumerate(lines)}.values()
    for place in chosen if file.suffix == ".jsonl" else [0]:
        data = json.loads(lines[place])
        for where in paths(data):
            shown = ".".join(map(str, where))
            for what, value in [("dropped", None), *VALUES.items()]:

                def change(run: Path, where=where, what=what, value=value, place=place, data=data):
                    new = copy.deepcopy(data)
                    inner = new
                    for step in where[:-1]:
                        inner = inner[step]
                    if what == "dropped":
                        del inner[where[-1]]
                    else:
                        inner[where[-1]] = value
                    written = json.dumps(new).replace(f'"{DEEP}"', "[" * 500 + "]" * 500)
                    for mark, raw in RAW.items():
                        written = written.replace(f'"{mark}"', raw)
                    target = real(run, name)
                    target.write_text("\n".join([*lines[:place], written, *lines[place + 1 :], ""]))
                    approve(target)

                yield f"{shown} {what}", change


def paths(data: Any, start: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every field; of a list the first element and the last."""
    if isinstance(data, dict):
        keys: list[Any] = list(data)
    elif isinstance(data, list):
        keys = sorted({0, len(data) - 1}) if data else []
    else:
        return
    if len(start) > 3:
        keys = keys[:2]
    for key in keys:
        yield (*start, key)
        yield from paths(data[key], (*start, key))


def tensor_changes(name: str) -> Iterator[tuple[str, Change]]:
    """Yield weights that are no numbers, or are not those of the model."""

    def with_tensors(edit: Callable[[dict[str, torch.Tensor]], None]) -> Change:
        def change(run: Path) -> None:
            file = real(run, name)
            tensors = load_file(file)
            edit(tensors)
            save_file(tensors, file)
            approve(file)

        return change

    def every(function: Callable[[torch.Tensor], torch.Tensor]) -> Change:
        return with_tensors(
            lambda tensors: tensors.update(
                {n: function(t).contiguous() for n, t in tensors.items()}
            )
        )

    yield "all NaN", every(lambda t: t.double().fill_(torch.nan).to(t.dtype))
    yield "all infinite", every(lambda t: t.double().fill_(torch.inf).to(t.dtype))
    yield "all zero", every(torch.zeros_like)
    yield "all huge", every(lambda t: torch.full_like(t, 1e30 if t.is_floating_point() else 1))
    yield "flat", every(torch.Tensor.flatten)
    yield "one row less", every(lambda t: t[1:] if t.dim() else t)
    yield "no elements", every(lambda t: t[:0] if t.dim() else t)
    yield "in 8 bits", every(lambda t: t.to(torch.int8))
    yield "complex", every(lambda t: t.to(torch.complex64))
    yield "none", with_tensors(lambda tensors: tensors.clear())
    yield "one less", with_tensors(lambda tensors: tensors.pop(min(tensors)))
    yield "one more", with_tensors(lambda tensors: tensors.update({"x": torch.zeros(2)}))
    yield (
        "a strange name",
        with_tensors(lambda tensors: tensors.update({"\x1b[31m": tensors.pop(min(tensors))})),
    )
    for what, header in {
        "a header of 2^60 bytes": (1 << 60).to_bytes(8, "little"),
        "a header that is no JSON": (8).to_bytes(8, "little") + b"[" * 8,
        "a tensor of 2^62 bytes": (lambda h: len(h).to_bytes(8, "little") + h)(
            b'{"x":{"dtype":"F32","shape":[1152921504606846976],"data_offsets":[0,4611686018427387904]}}'
        ),
    }.items():

        def raw(run: Path, header: bytes = header) -> None:
            real(run, name).write_bytes(header)
            approve(real(run, name))

        yield what, raw


def approve(file: Path) -> None:
    """Write the checksum of a changed file where it is kept, as somebody hostile would."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    beside = file.parent / "thinrnn.json"
    if file.name == "model.safetensors" and beside.exists():
        about = json.loads(beside.read_text())
        beside.write_text(json.dumps({**about, "sha256": digest}))
    manifest = file.parent / "manifest.json"
    if file != manifest and manifest.exists():
        about = json.loads(manifest.read_text())
        about[file.name] = {"bytes": file.stat().st_size, "sha256": digest}
        manifest.write_text(json.dumps(about))
