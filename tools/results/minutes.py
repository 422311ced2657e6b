"""How long runs took: as they ran, most of them side by side, and some alone on the GPU."""

import json
from pathlib import Path
from typing import Any

from tools.results.runs import Results, place
from tools.results.tables import markdown

FILE, HIGHWAY_FILE = "speed/run-minutes-cuda.json", "speed/run-minutes-rhn-cuda.json"
DENSE, PRUNED, HIGHWAY = "ptb-dense-ntasgd", "ptb-paper", "ptb-rhn-plain"
TIMED_AS = "ptb-rhn-paper"  # the name that ptb-rhn-plain had when it was timed


def read(folder: Path) -> dict[str, Any] | None:
    """Return what `benchmarks/run_minutes.py` measured, if it is there."""
    path, highway = folder / FILE, folder / HIGHWAY_FILE
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_bytes())
    if highway.exists():
        found["runs"][HIGHWAY] = json.loads(highway.read_bytes())["runs"][TIMED_AS]
    return found


def alone(found: dict[str, Any]) -> str:
    """Return the minutes of runs that had the GPU to themselves."""
    lines = [
        [f"`{name}`", str(run["epochs"]), str(run["trained"]), f"{run['minutes']:.1f}"]
        for name, run in found["runs"].items()
    ]
    return markdown(("run", "epochs", "epochs timed", "minutes for all epochs"), lines)


def share(found: dict[str, Any]) -> float:
    """Return the time of an epoch of the pruned run, on average, over that of a dense one."""
    pruned, dense = (
        found["runs"][name]["minutes"] / found["runs"][name]["epochs"] for name in (PRUNED, DENSE)
    )
    return float(pruned / dense)


def table(results: Results) -> str:
    """Return epochs, minutes and memory of every model; what was only tried comes last."""
    lines = []
    for name, run in sorted(results.runs.items(), key=lambda item: "-try-" in item[0]):
        machine = run["environment"].get("gpu") or run["environment"]["processor"]
        for kind, model in run["models"].items():
            memory = model.get("memory")
            size = "-" if memory is None else f"{memory / 2**30:.2f}"
            epochs, taken = str(model["epochs"]), f"{model['seconds'] / 60:.1f}"
            lines.append([f"[{name}]({place(name)}.json)", kind, epochs, taken, size, machine])
    return markdown(("run", "model", "epochs", "minutes", "GPU memory, GiB", "machine"), lines)
