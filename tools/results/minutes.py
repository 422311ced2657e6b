"""What `benchmarks/run_minutes.py` found about the minutes of whole runs, alone on a GPU."""

import json
from pathlib import Path
from typing import Any

from thinrnn.lab import recipes
from tools.results.markdown import markdown

FILE, HIGHWAY_FILE = "speed/run-minutes-cuda.json", "speed/run-minutes-rhn-cuda.json"
DENSE, PRUNED = "ptb-dense-ntasgd", "ptb-paper"
MOST_MINUTES, MOST_OF_DENSE = 15.0, 0.5  # asked for
HIGHWAY, HIGHWAY_EPOCHS, MOST_HIGHWAY_MINUTES = "ptb-rhn-plain", 300, 20.0  # likewise
TIMED_AS = "ptb-rhn-paper"  # the name that this preset had when it was timed


def read(folder: Path) -> dict[str, Any] | None:
    """Return what was measured, if it was."""
    path, highway = folder / FILE, folder / HIGHWAY_FILE
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_bytes())
    if highway.exists():
        found["runs"][HIGHWAY] = json.loads(highway.read_bytes())["runs"][TIMED_AS]
    return found


def section(found: dict[str, Any] | None) -> str:
    """Return table and text; nothing if nothing was measured."""
    if found is None:
        return ""
    lines = [
        [f"`{name}`", str(run["epochs"]), str(run["trained"]), f"{run['minutes']:.1f}"]
        for name, run in found["runs"].items()
    ]
    head = ("run, alone on the GPU", "epochs", "of these trained", "minutes of all")
    ratio = _ratio(found)
    verdict = "which is reached" if not missed(found) else "which is **missed**"
    return (
        markdown(head, lines) + f"\n\nOn one {found['environment']['gpu']}; epochs that were "
        "not trained count as much as the last ones that were. Neuron selection from "
        f"1500-1500-1500 takes {ratio:.2f} times as long as the dense NT-ASGD run of as many "
        f"epochs. At most {MOST_MINUTES:g} minutes and half the time were asked, {verdict}."
        + _highway(found)
    )


def missed(found: dict[str, Any] | None) -> list[str]:
    """Return a line for each figure that is not what was asked for, or not there."""
    if found is None:
        return [f"- minutes of a whole `{PRUNED}` beside the dense run: not measured yet."]
    lines, minutes, ratio = [], found["runs"][PRUNED]["minutes"], _ratio(found)
    if minutes > MOST_MINUTES:
        lines.append(f"- a whole `{PRUNED}`: {minutes:.1f} minutes, asked: at most 15.")
    if ratio > MOST_OF_DENSE:
        lines.append(f"- a whole `{PRUNED}`: {ratio:.2f} of the dense run's time, asked: half.")
    if HIGHWAY in found["runs"] and _highway_minutes(found) > MOST_HIGHWAY_MINUTES:
        took = f"{_highway_minutes(found):.1f} minutes, asked: at most {MOST_HIGHWAY_MINUTES:g}"
        lines.append(f"- {HIGHWAY_EPOCHS} epochs of `{HIGHWAY}`: {took}.")
    return lines


def _highway(found: dict[str, Any]) -> str:
    """Return a sentence on the highway network, if it was timed."""
    if HIGHWAY not in found["runs"]:
        return ""
    minutes = _highway_minutes(found)
    verdict = "reached" if minutes <= MOST_HIGHWAY_MINUTES else "**missed**"
    batch = recipes.preset(HIGHWAY).settings().batch
    return (
        f" {HIGHWAY_EPOCHS} epochs of `{HIGHWAY}` in batches of {batch}, in proportion, take "
        f"{minutes:.1f} minutes; at most {MOST_HIGHWAY_MINUTES:g} were asked, which is {verdict}."
    )


def _highway_minutes(found: dict[str, Any]) -> float:
    run = found["runs"][HIGHWAY]
    return float(run["minutes"] / run["epochs"] * HIGHWAY_EPOCHS)


def _ratio(found: dict[str, Any]) -> float:
    """Return the time of a pruned epoch, on average, over that of a dense one."""
    pruned, dense = (
        found["runs"][name]["minutes"] / found["runs"][name]["epochs"] for name in (PRUNED, DENSE)
    )
    return float(pruned / dense)
