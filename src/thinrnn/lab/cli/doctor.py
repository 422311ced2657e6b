"""thinrnn doctor: is everything here that thinrnn needs, and does it work."""

from typing import Any

import typer

from thinrnn._extras import how_to_install, missing
from thinrnn.lab.cli.options import Json

EXTRAS = {
    "onnxruntime": f"export to ONNX: {how_to_install('onnx')}",
    "matplotlib": f"reports: {how_to_install('report')}",
    "pooch": f"downloads: {how_to_install('data')}",
    "tensorboard": "curves in TensorBoard: pip install tensorboard",
}


def doctor(json: Json = False) -> None:
    """Show versions, devices and extras, and prune a tiny model to see that all works."""
    import torch

    from thinrnn.lab.cli.output import show
    from thinrnn.lab.run.environment import environment
    from thinrnn.lab.table import table

    device = "cuda" if torch.cuda.is_available() else "cpu"
    found: dict[str, Any] = environment(device)
    extras = {name: not missing(name) for name in EXTRAS}
    problem = self_test()
    rows = [(name, str(value)) for name, value in found.items()]
    rows += [
        (name, "there" if there else f"not installed; {EXTRAS[name]}")
        for name, there in extras.items()
    ]
    rows.append(("self-test", problem or "a tiny model was pruned, compacted and verified"))
    last = "all is well; next: thinrnn demo" if not problem else "thinrnn does not work here"
    result = {"environment": found, "extras": extras, "problem": problem, "works": not problem}
    show(result, table(rows), last, as_json=json)
    raise typer.Exit(1 if problem else 0)


def self_test() -> str:
    """Prune, compact and verify a tiny model; return what went wrong, if anything."""
    import torch

    import thinrnn
    from thinrnn.lab.recipes.language_model.model import LanguageModel, example_tokens

    try:
        model = LanguageModel(11, embedding=6, hidden=(8, 8))
        tokens = example_tokens()
        thinrnn.attach_(model, thinrnn.find_groups(model, tokens))
        for gate in thinrnn.gates(model).values():
            gate.log_alpha = torch.linspace(-4, 4, gate.size)
        thinrnn.verify(model, thinrnn.compact(model), tokens)
    except Exception as error:  # whatever it is, the user should read it here
        return f"{type(error).__name__}: {error}"
    return ""
