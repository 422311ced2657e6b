"""What a finished run must have reached, and whether it did.

The command line prints the verdicts and sets its exit code by them; the report shows them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Summaries = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Verdict:
    """One requirement in words, and whether the run meets it."""

    text: str
    holds: bool


def verdicts(config: Mapping[str, Any], summaries: Summaries) -> list[Verdict]:
    """Return the verdicts on a run.

    Args:
        config: The run's config.json.
        summaries: The run's dense.json, small.json and control.json, as far as they exist.

    Returns:
        A failed verdict for each model whose perplexity is not a number; for the demo its own
        three verdicts; for other runs one verdict for each size target.
    """
    if config.get("preset") == "demo":
        return _finite(config, summaries) + _demo(summaries)
    return _finite(config, summaries) + _size(config.get("settings") or {}, summaries)


def _finite(config: Mapping[str, Any], summaries: Summaries) -> list[Verdict]:
    """Only failures are worth a line."""
    metrics = config.get("metrics") or ("valid_perplexity",)
    return [
        Verdict(f"the {name} of the {kind} model is a number; try a smaller lr", False)
        for kind, summary in summaries.items()
        for name in metrics
        if not math.isfinite(_number(summary, name, 0.0))
    ]


def _size(settings: Mapping[str, Any], summaries: Summaries) -> list[Verdict]:
    small, dense = summaries.get("small"), summaries.get("dense")
    found = []
    for name, key in (("parameters", "params"), ("mult-adds", "macs")):
        wanted = settings.get(f"target_{key}")
        if small is None or wanted is None or (wanted <= 1 and dense is None):
            continue
        limit = wanted * _number(dense, key) if dense is not None and wanted <= 1 else wanted
        size = _number(small, key)
        found.append(Verdict(f"{size:,.0f} {name}, at most {limit:,.0f}", size <= limit))
    return found


def _demo(summaries: Summaries) -> list[Verdict]:
    if len(summaries) < 3:
        return [Verdict("a dense model, a small one and a control to compare", False)]
    models = [summaries[kind] for kind in ("dense", "small", "control")]
    theirs, ours, scratch = (_number(model, "valid_perplexity") for model in models)
    dense, small, _ = (_number(model, "weights") for model in models)
    return [
        Verdict(
            f"validation perplexity {ours:.2f}, at most 3 % above the dense model's {theirs:.2f}",
            ours <= 1.03 * theirs,
        ),
        Verdict(
            f"validation perplexity {ours:.2f}, no worse than {scratch:.2f} from scratch",
            ours <= scratch,
        ),
        Verdict(
            f"{small:,.0f} weights, under a third of {dense:,.0f}",
            3 * small < dense,
        ),
    ]


def _number(summary: Mapping[str, Any], key: str, missing: float = math.nan) -> float:
    value = summary.get(key)
    return missing if value is None else float(value)
