"""thinrnn doctor: a check of the installation."""

from typing import Any

import typer

from thinrnn._extras import how_to_install, missing
from thinrnn.lab.cli.options import Json
from thinrnn.lab.command import command

EXTRAS = {
    "onnxruntime": f"ONNX export: {how_to_install('onnx')}",
    "matplotlib": f"reports: {how_to_install('report')}",
    "pooch": f"downloads: {how_to_install('data')}",
    "optuna": f"sweeps: {how_to_install('sweep')}",
    "tensorboard": "curves in TensorBoard: pip install tensorboard",
}


def doctor(json: Json = False) -> None:
    """Show versions, devices and extras, and prune a tiny model as a self-test."""
    import torch

    from thinrnn._table import table
    from thinrnn.lab.cli.output import show
    from thinrnn.lab.run.environment import environment

    device = "cuda" if torch.cuda.is_available() else "cpu"
    found: dict[str, Any] = environment(device)
    extras = {name: not missing(name) for name in EXTRAS}
    problem = self_test()
    rows = [(name, str(value)) for name, value in found.items()]
    rows += [
        (name, "installed" if there else f"missing; {EXTRAS[name]}")
        for name, there in extras.items()
    ]
    rows.append(("self-test", problem or "pruned and verified a tiny model"))
    last = f"thinrnn works; next: {command('demo')}" if not problem else "thinrnn does not work"
    result = {"environment": found, "extras": extras, "problem": problem, "works": not problem}
    show(result, table(rows), last, as_json=json)
    raise typer.Exit(1 if problem else 0)


def self_test() -> str:
    """Prune and verify a tiny model; return what went wrong, or an empty text."""
    import torch

    import thinrnn

    try:
        model, example = torch.nn.LSTM(5, 8, num_layers=2), torch.randn(3, 2, 5)
        thinrnn.attach_(model, thinrnn.find_groups(model, example))
        for gate in thinrnn.gates(model).values():
            gate.log_alpha = torch.linspace(-4, 4, gate.size)
        thinrnn.verify(model, thinrnn.compact(model), example)
    except Exception as error:  # whatever it is, the user should read it here
        return f"{type(error).__name__}: {error}"
    return ""
