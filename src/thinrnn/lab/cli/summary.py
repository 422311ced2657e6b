"""The table at the end of a run, and what a run promises."""

import math
from dataclasses import dataclass
from typing import Any

from thinrnn.lab.cli.output import table

Summaries = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Promise:
    """Something that must hold at the end, and whether it does."""

    text: str
    holds: bool


def run_table(summaries: Summaries) -> str:
    """Return the models of a run side by side."""
    kinds = list(summaries)
    rows = [["", *kinds]]

    def add(label: str, shown: Any) -> None:
        cells = [shown(summaries[kind]) for kind in kinds]
        if any(cells):
            rows.append([label, *(cell or "-" for cell in cells)])

    for measure in ("em", "f1"):
        add(measure.upper(), lambda s, m=measure: _number(s.get(m), ".2f"))
    for part in ("valid", "test"):
        add(f"{part} perplexity", lambda s, p=part: _number(s.get(f"{p}_perplexity"), ".2f"))
    add("neurons", lambda s: "-".join(map(str, s["neurons"].values())))
    add("weights", lambda s: f"{s['weights']:,}")
    add("bytes", lambda s: f"{s['bytes']:,}")
    add("mult-adds/step", lambda s: f"{s['macs']:,}")
    add("milliseconds", lambda s: _number(s.get("milliseconds"), ".2f"))
    add("speed-up", lambda s: _ratio(summaries.get("dense"), s, "milliseconds"))
    add("ONNX Runtime ms", lambda s: _number(s.get("onnx_milliseconds"), ".2f"))
    add("ONNX speed-up", lambda s: _ratio(summaries.get("dense"), s, "onnx_milliseconds"))
    longest = max(s.get("seconds") or 0 for s in summaries.values())
    add("trained in s", lambda s: _number(s.get("seconds"), ".0f" if longest >= 100 else ".1f"))
    return table(rows)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _ratio(dense: dict[str, Any] | None, other: dict[str, Any], time: str) -> str:
    if dense is None or not dense.get(time) or not other.get(time):
        return ""
    return f"{dense[time] / other[time]:.2f}x"


def finite_promises(summaries: Summaries) -> list[Promise]:
    """Return a broken promise for each model that has learned nothing; good ones go unsaid."""
    return [
        Promise(f"the perplexity of the {kind} model is a number; try a smaller lr", False)
        for kind, summary in summaries.items()
        if not math.isfinite(summary["valid_perplexity"])
    ]


def size_promises(settings: dict[str, Any], summaries: Summaries) -> list[Promise]:
    """Return what every pruned run promises: the size that was asked for."""
    small, dense = summaries.get("small"), summaries.get("dense")
    promises = []
    for name, target in (("params", "target_params"), ("macs", "target_macs")):
        wanted = settings.get(target)
        if small is None or wanted is None or (wanted <= 1 and dense is None):
            continue
        limit = wanted * dense[name] if wanted <= 1 else wanted  # type: ignore[index]
        promises.append(
            Promise(f"{small[name]:,} {name}, at most {limit:,.0f}", small[name] <= limit)
        )
    return promises


def demo_promises(summaries: Summaries) -> list[Promise]:
    """Return what the demo promises."""
    if len(summaries) < 3:
        return [Promise("a dense model, a small one and a control to compare", False)]
    dense, small, control = (summaries[kind] for kind in ("dense", "small", "control"))
    ours, theirs, scratch = (s["valid_perplexity"] for s in (small, dense, control))
    return [
        Promise(
            f"perplexity {ours:.2f}, at most 3 % above the dense model's {theirs:.2f}",
            ours <= 1.03 * theirs,
        ),
        Promise(
            f"perplexity {ours:.2f}, no worse than {scratch:.2f} of the same shape from scratch",
            ours <= scratch,
        ),
        Promise(
            f"{small['weights']:,} weights, under a third of {dense['weights']:,}",
            3 * small["weights"] < dense["weights"],
        ),
    ]


def promise_lines(promises: list[Promise]) -> str:
    """Return one line per promise."""
    return "\n".join(f"{'kept  ' if p.holds else 'BROKEN'}  {p.text}" for p in promises)
