"""From folders and what a user typed to a complete comparison."""

import dataclasses
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from thinrnn.errors import ExportError, MissingExtraError
from thinrnn.lab.bench.candidates import build_dense, make_candidate
from thinrnn.lab.bench.compare import compare
from thinrnn.lab.bench.quality import measure_quality
from thinrnn.lab.bench.runtimes import FILES, RUNTIMES
from thinrnn.lab.bench.wanted import Wanted
from thinrnn.lab.run.environment import command_line, environment
from thinrnn.lab.run.errors import InputError
from thinrnn.lab.run.progress import Progress
from thinrnn.onnx.runtime import require_onnx
from thinrnn.timing import largest_cache


def compare_folders(
    folders: dict[str, Path], wanted: Wanted, *, dense: str | None, progress: Progress
) -> dict[str, Any]:
    """Return the comparison of models in folders as JSON values.

    The first model is dense: the one that is there, or an untrained one.
    """
    dropped: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="thinrnn-bench-") as temporary:
        place = Path(temporary)
        untrained = not any(name.split("/")[-1] == "dense" for name in folders) or dense is not None
        if untrained:
            like = next(iter(folders.values()))
            first = {"dense": build_dense(like, place / "untrained", dense)}
            others = {name: folder for name, folder in folders.items() if name != "dense"}
            folders = {**first, **others}
        runtimes = _available(wanted.runtimes, dropped)
        candidates = []
        for number, (name, folder) in enumerate(folders.items()):
            progress.line(f"preparing {name}")
            files = place / str(number)
            try:
                candidates.append(make_candidate(name, folder, files, runtimes))
            except ExportError as error:
                dropped += [
                    {"runtime": r, "reason": f"{name}: {error}"} for r in runtimes if r in FILES
                ]
                runtimes = [runtime for runtime in runtimes if runtime not in FILES]
                candidates.append(make_candidate(name, folder, files, runtimes))
        if not runtimes:
            raise InputError(f"there is nothing to time: {dropped[0]['reason']}")
        trained = candidates[1:] if untrained else candidates
        quality = measure_quality(trained, wanted, runtimes, progress)
        found = compare(candidates, dataclasses.replace(wanted, runtimes=runtimes), progress)
    return {
        "command": command_line(),
        "models": {one.name: one.size for one in candidates},
        "untrained": ["dense"] if untrained else [],
        "cases": found.cases,
        "memory": found.memory,
        "quality": quality,
        "skipped": dropped + found.skipped,
        "environment": _machine(runtimes),
    }


def parse_runtimes(text: str) -> list[str]:
    """Return the runtimes of "eager,onnx" or "all"."""
    wanted = list(RUNTIMES) if text == "all" else text.split(",")
    for one in wanted:
        if one not in RUNTIMES:
            raise InputError(
                f"there is no runtime '{one}': choose some of {','.join(RUNTIMES)}, or all."
            )
    return list(dict.fromkeys(wanted))


def parse_shapes(texts: list[str]) -> list[tuple[int, int]]:
    """Return batch and steps of "10x30"."""
    shapes = []
    for text in texts:
        batch, _, steps = text.partition("x")
        if not (batch.isdigit() and steps.isdigit() and int(batch) and int(steps)):
            raise InputError(f"'{text}' is no shape: write batch and steps like 10x30.")
        shapes.append((int(batch), int(steps)))
    return list(dict.fromkeys(shapes))


def _available(runtimes: list[str], dropped: list[dict[str, Any]]) -> list[str]:
    if not set(runtimes) & set(FILES):
        return runtimes
    try:
        require_onnx()
    except MissingExtraError as error:
        dropped += [{"runtime": one, "reason": str(error)} for one in runtimes if one in FILES]
        return [one for one in runtimes if one not in FILES]
    return runtimes


def _machine(runtimes: list[str]) -> dict[str, Any]:
    found = {**environment(), "cache": largest_cache()}
    found.pop("threads")  # each case has its own
    if set(runtimes) & set(FILES):
        found["onnxruntime"] = metadata.version("onnxruntime")
    return found
