"""Recurrent models of public packages, pruned as they are: what is covered, exact, and saved.

    python -m benchmarks.zoo --python ENV/bin/python --install
    python -m benchmarks.zoo --python ENV/bin/python --onnx --keep --only OpenUnmix VGSL

Each model of `zoo_models.py` runs in a process of its own, with a time limit. Give an environment
that has torch and thinrnn: packages are installed there one by one, without their dependencies, so
that pip replaces no torch. torchaudio and torchvision are installed without their compiled parts,
which have to match the build of torch and which no model here needs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import thinrnn
from benchmarks.record import parser, write_record
from benchmarks.zoo_models import NEEDED, ZOO, ZooModel
from thinrnn._layers.registry import is_recurrent, layers_of
from thinrnn._model.isolation import run
from thinrnn._model.tree import call_arguments, map_tensors, tensors_in
from tools.results.paths import without_paths

UNMATCHED = ("torchaudio", "torchvision")
EXACT = 1e-10  # relative to the outputs, as `verify` has it in float64


def main() -> None:
    options = _options()
    if options.one:
        print("row " + json.dumps(row(ZOO[options.one], onnx=options.onnx)))
        return
    names = options.only or list(ZOO)
    if options.install:
        install(options.python, names)
    python, options.python = options.python, Path(options.python).name
    rows, earlier = _rows_in(options.out) if options.keep else ({}, [])
    for name in names:
        rows[name] = in_process(python, name, options)
        print({key: value for key, value in rows[name].items() if key != "refused"}, flush=True)
        works = sum(one["works"] for one in rows.values())
        wrong = sum(one.get("relative", 0.0) > EXACT for one in rows.values())
        models = without_paths(list(rows.values()))
        about = {"works": works, "wrong": wrong, "earlier_commands": earlier, "models": models}
        write_record("recurrent models of public packages", options, **about)
    print(f"{works} of {len(rows)} work, {wrong} are wrong")


def _rows_in(file: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the models of a record, and the commands that wrote it."""
    found = json.loads(file.read_bytes())
    commands = [*found.get("earlier_commands", []), found["command"]]
    return {one["model"]: one for one in found["models"]}, commands


def _options() -> argparse.Namespace:
    arguments = parser(__doc__, "../zoo.json")
    arguments.add_argument("--python", default=sys.executable, help="of the environment to use")
    arguments.add_argument("--install", action="store_true", help="install the packages there")
    arguments.add_argument("--only", nargs="+", choices=ZOO, metavar="NAME")
    arguments.add_argument("--keep", action="store_true", help="keep other models in the file")
    arguments.add_argument("--onnx", action="store_true", help="export the small models as well")
    arguments.add_argument("--timeout", type=int, default=300, help="seconds for each model")
    arguments.add_argument("--one", choices=ZOO, help=argparse.SUPPRESS)
    return arguments.parse_args()


def install(python: str, names: list[str]) -> None:
    """Install the packages of the models, without dependencies."""
    pip = [python, "-m", "pip", "install", "-q", "--no-deps"]
    for package in dict.fromkeys((*(p for name in names for p in ZOO[name].packages), *NEEDED)):
        done = subprocess.run([*pip, package], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{package}: {done.stderr.strip().splitlines()[-1]}", flush=True)
    find = "import sysconfig; print(sysconfig.get_path('purelib'))"
    home = subprocess.run([python, "-c", find], capture_output=True, text=True, check=True).stdout
    for package in UNMATCHED:
        for compiled in (Path(home.strip()) / package).rglob("*.so"):
            compiled.unlink()


def in_process(python: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Try one model in a process of its own."""
    command = [python, "-m", "benchmarks.zoo", "--one", name, *["--onnx"] * options.onnx]
    seconds = options.timeout
    start = {"model": name, "area": ZOO[name].area, "package": ZOO[name].packages[0]}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {**start, "works": False, "why": f"more than {seconds} seconds"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("row "):
            found: dict[str, Any] = json.loads(line.removeprefix("row "))
            return start | found
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    return {**start, "works": False, "why": f"exit code {done.returncode}: {last[:200]}"}


def row(entry: ZooModel, *, onnx: bool) -> dict[str, Any]:
    """Return what thinrnn does with a model."""
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {"version": version(entry.packages[0]), "works": False}
    try:
        model, example = built(entry)
        found["parameters"] = sum(p.numel() for p in model.parameters())
        start = time.perf_counter()
        plan = thinrnn.find_groups(model, example, **entry.options)
        found["seconds"] = round(time.perf_counter() - start, 2)
        found |= covered(model, plan)
        found["can_go"] = share_that_can_go(entry, plan)
        model, example = built(entry)
        model, example = model.double(), _double(example)
        thinrnn.attach_(model, plan)
        close_(model)
        small = thinrnn.compact(model)
        found["error"] = thinrnn.verify(model, small, example, tolerance=1.0)
        found["relative"] = found["error"] / (1 + _size(small, example))
        found["saved"] = saved_and_loaded(entry, small, example)
        found["works"] = found["relative"] <= EXACT and found["saved"] and found["covered"] > 0
        found |= exported(entry, plan) if onnx else {}
    except Exception as error:
        found["why"] = f"{type(error).__name__}: {error}"[:400]
    return found


def built(entry: ZooModel) -> tuple[nn.Module, Any]:
    """Return a model with random weights, always the same ones, and its example."""
    torch.manual_seed(0)
    model, example = entry.build()
    with torch.no_grad():
        for parameter in model.parameters():  # zeros hide what they multiply
            if not parameter.any():
                parameter += 0.1 * torch.randn_like(parameter)
    return model.eval(), example


def covered(model: nn.Module, plan: thinrnn.Plan) -> dict[str, Any]:
    """Return how many of the recurrent layers' parts have neurons that can go, and refusals."""
    layers = layers_of(model)
    known = {name for name, layer in layers.items() if layer.is_recurrent}
    every = {name for name, module in model.named_modules() if is_recurrent(module)}
    makers = {owner for group in plan for owner in group.owners("produce")}
    loops = makers - set(known) if not every else set()
    refused = {r.group.name: r.reason for r in plan.refused if r.reason != "returned to the caller"}
    return {
        "covered": len(every & makers) or len(loops),
        "recurrent": len(every) or len(loops),
        "groups": len(plan),
        "refused": refused,
    }


def share_that_can_go(entry: ZooModel, plan: thinrnn.Plan) -> float:
    """Return the share of parameters that goes when each group keeps one neuron."""
    model, _ = built(entry)
    before = sum(p.numel() for p in model.parameters())
    thinrnn.attach_(model, plan)
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.where(torch.arange(gate.size) == 0, 9.0, -9.0)
    after = sum(p.numel() for p in thinrnn.compact(model).parameters())
    return round(1 - after / before, 4)


def close_(model: nn.Module) -> None:
    """Close about half of the gates at random, and leave others half open."""
    generator = torch.Generator().manual_seed(0)
    for gate in thinrnn.gates(model).values():
        soft = torch.rand(gate.size, generator=generator) * 4 - 2
        closed = torch.rand(gate.size, generator=generator) < 0.5
        gate.log_alpha = torch.where(closed, -9.0, soft)


def saved_and_loaded(entry: ZooModel, small: nn.Module, example: Any) -> bool:
    """Whether the saved model, loaded into a fresh one, gives the same outputs."""
    with tempfile.TemporaryDirectory() as folder:
        thinrnn.save(small, folder)
        fresh = built(entry)[0].double()
        thinrnn.load_(fresh, folder)
    ours, theirs = (_outputs(model.eval(), example) for model in (small, fresh))
    return len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))


def exported(entry: ZooModel, plan: thinrnn.Plan) -> dict[str, Any]:
    """Return whether the small model exports to ONNX with the same outputs, or why not."""
    model, example = built(entry)
    thinrnn.attach_(model, plan)
    close_(model)
    small = thinrnn.compact(model).eval()
    try:
        with tempfile.TemporaryDirectory() as folder:
            thinrnn.export_onnx(small, Path(folder) / "model.onnx", example)
    except Exception as error:
        return {"onnx": f"{type(error).__name__}: {error}"[:300]}
    return {"onnx": "yes"}


def _outputs(model: nn.Module, example: Any) -> list[Tensor]:
    return [t.clone() for t in tensors_in(run(model, call_arguments(example)))]


def _size(model: nn.Module, example: Any) -> float:
    outputs = _outputs(model, example)
    return max(float(t.abs().max()) for t in outputs if t.is_floating_point() and t.numel())


def _double(example: Any) -> Any:
    return map_tensors(example, lambda t: t.double() if t.is_floating_point() else t)


if __name__ == "__main__":
    main()
