"""Whether the time left that a run shows is right.

    thinrnn demo --out runs/demo
    python -m benchmarks.time_left runs/demo

After a tenth, a quarter and half of its time, each finished run's estimate is compared with what
it took from there.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.record import parser, write_record
from thinrnn.lab.recipes.phase import PHASE_TIMES

PARTS = (0.1, 0.25, 0.5)


def estimates(run: Path) -> list[dict[str, Any]]:
    """Return estimated and true seconds left, at the first entry after each part of the run."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    events = [event for event in map(json.loads, lines) if event["event"] in ("step", "epoch")]
    ends = {event["phase"]: event for event in events}
    before: dict[str, float] = {}
    for name in ends:
        before[name] = sum(ends[other]["seconds"] for other in before)
    total = sum(end["seconds"] for end in ends.values())
    found = []
    for part in PARTS:
        at = next(e for e in events if before[e["phase"]] + e["seconds"] >= part * total)
        left = time_left(at, {name: end["step"] for name, end in ends.items()})
        true = total - before[at["phase"]] - at["seconds"]
        found.append({"part": part, "phase": at["phase"], "shown": left, "true": true})
        found[-1]["error"] = left / true - 1
    return found


def time_left(event: dict[str, Any], steps: dict[str, int]) -> float:
    """Return the seconds left that the run showed at an entry."""
    names = list(steps)
    later = names[names.index(event["phase"]) + 1 :]
    work = sum(PHASE_TIMES[name] * steps[name] for name in later) / PHASE_TIMES[event["phase"]]
    left = steps[event["phase"]] - event["step"] + work
    return float(event["seconds"] / event["step"] * left)


def main() -> None:
    arguments = parser(__doc__, "time-left.json")
    arguments.add_argument("runs", type=Path, nargs="+", help="folders of finished runs")
    options = arguments.parse_args()
    runs = []
    for folder in options.runs:
        config = json.loads((folder / "config.json").read_bytes())
        runs.append({"run": folder.name, "command": config["command"], "at": estimates(folder)})
        runs[-1]["machine"] = config["environment"]
        for at in runs[-1]["at"]:
            print(
                f"{folder.name}: after {at['part']:.0%} of the time {at['shown']:.0f} s left were "
                f"shown, {at['true']:.0f} s were true ({at['error']:+.0%})"
            )
    write_record("time left as a run shows it, and as it was", options, runs=runs)


if __name__ == "__main__":
    main()
