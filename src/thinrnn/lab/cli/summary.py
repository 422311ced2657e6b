"""The table and the verdicts at the end of a run."""

from typing import Any

from thinrnn._table import table
from thinrnn.lab.verdicts import Verdict, control_failure
from thinrnn.timing import NOISY

Summaries = dict[str, dict[str, Any]]


def run_table(config: dict[str, Any], summaries: Summaries) -> str:
    """Return the models of a run side by side; a control that did not learn has failed."""
    kinds = list(summaries)
    failed = {"control": "control failed"} if control_failure(config, summaries) else {}
    rows = [["", *(failed.get(kind, kind) for kind in kinds)]]

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
    add("PyTorch ms", lambda s: _number(s.get("milliseconds"), ".2f"))
    add("PyTorch speed-up", lambda s: _ratio(summaries.get("dense"), s, "milliseconds"))
    add("ONNX Runtime ms", lambda s: _number(s.get("onnx_milliseconds"), ".2f"))
    add("ONNX Runtime speed-up", lambda s: _ratio(summaries.get("dense"), s, "onnx_milliseconds"))
    longest = max(s.get("seconds") or 0 for s in summaries.values())
    add("training seconds", lambda s: _number(s.get("seconds"), ".0f" if longest >= 100 else ".1f"))
    return table(rows, "<>")


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _ratio(dense: dict[str, Any] | None, other: dict[str, Any], time: str) -> str:
    if dense is None or not dense.get(time) or not other.get(time):
        return ""
    spread = max(one.get(f"{time}_spread") or 1.0 for one in (dense, other))
    return "too noisy" if spread > NOISY else f"{dense[time] / other[time]:.2f}x"


def verdict_lines(verdicts: list[Verdict]) -> str:
    """Return one line per verdict."""
    return "\n".join(f"{'ok    ' if v.holds else 'FAILED'}  {v.text}" for v in verdicts)
