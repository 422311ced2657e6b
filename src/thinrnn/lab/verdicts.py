"""What a finished run must have reached, and whether it did.

The command line prints the verdicts and sets its exit code by them; the report shows them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Summaries = Mapping[str, Mapping[str, Any]]

LEARNED_NOTHING = 0.9  # of the unigram model's perplexity: what is above has hardly learned
DEMO = {"dense", "gated", "control"}  # the phases that its verdicts compare
FAR = 2.0  # times the dense model's perplexity


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
        A failed verdict for each model whose perplexity is not a number; for the demo with all its
        phases its own three verdicts; for other runs one verdict for each size target. A control
        that failed to learn is a failed verdict too.
    """
    found = _finite(config, summaries)
    failure = control_failure(config, summaries)
    if failure:
        found.append(Verdict(failure, False))
    settings = config.get("settings") or {}
    if config.get("preset") == "demo" and set(settings.get("phases", DEMO)) >= DEMO:
        return found + _demo(summaries, control_failed=bool(failure))
    return found + _size(settings, summaries)


def control_failure(config: Mapping[str, Any], summaries: Summaries) -> str:
    """Return why comparing with the control is not fair, or an empty text.

    It failed if it is hardly better than the unigram model, or if its perplexity is more than twice
    the dense model's although the small model of the same shape is closer.
    """
    key = "valid_perplexity"
    control = _number(summaries.get("control", {}), key)
    small, dense = (_number(summaries.get(kind, {}), key) for kind in ("small", "dense"))
    unigram = _unigram(config)
    if has_learned_nothing(config, summaries.get("control", {})):
        return f"control failed: perplexity {control:.2f}, the unigram model has {unigram:.2f}"
    kind, other = ("small", small) if math.isnan(dense) else ("dense", dense)
    if control > FAR * other and not small > FAR * other:
        return f"control failed: perplexity {control:.2f}, the {kind} model has {other:.2f}"
    return ""


def has_learned_nothing(config: Mapping[str, Any], measured: Mapping[str, Any]) -> bool:
    """Return whether a model is hardly better than the unigram model, where there is one."""
    return _number(measured, "valid_perplexity") > LEARNED_NOTHING * _unigram(config)


def _unigram(config: Mapping[str, Any]) -> float:
    text = config.get("text")
    return _number(text if isinstance(text, Mapping) else {}, "unigram_perplexity")


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
        if small is None or not isinstance(wanted, int | float) or (wanted <= 1 and dense is None):
            continue
        limit = wanted * _number(dense, key) if dense is not None and wanted <= 1 else wanted
        size = _number(small, key)
        found.append(Verdict(f"{size:,.0f} {name}, at most {limit:,.0f}", size <= limit))
    return found


def _demo(summaries: Summaries, *, control_failed: bool) -> list[Verdict]:
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
            ours <= scratch and not control_failed,
        ),
        Verdict(
            f"{small:,.0f} weights, under a third of {dense:,.0f}",
            3 * small < dense,
        ),
    ]


def _number(summary: Mapping[str, Any], key: str, missing: float = math.nan) -> float:
    value = summary.get(key)
    return float(value) if isinstance(value, int | float) else missing
