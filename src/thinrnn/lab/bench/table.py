"""What was compared, as text."""

from typing import Any


def case_title(case: dict[str, Any]) -> str:
    """Return "batch 1, 1 step, 1 thread, cold caches"."""
    parts = [f"batch {case['batch']}", _several(case["steps"], "step")]
    parts.append(_several(case["threads"], "thread"))
    if case["caches"] == "cold":
        parts.append("cold caches")
    return ", ".join(parts)


def tables(found: dict[str, Any]) -> str:
    """Return a table for each shape and number of threads, one of sizes, and what was skipped."""
    lines: list[str] = []
    by_title: dict[str, list[dict[str, Any]]] = {}
    for case in found["cases"]:
        by_title.setdefault(case_title(case), []).append(case)
    for title, cases in by_title.items():
        over = [case["runtime"] for case in cases if case["runtime"] in ("eager", "onnx")]
        header = ["runtime", "model", "median ms", "quartiles", "speed-up"]
        first = next(iter(cases[0]["models"]))
        rows = [[*header, *(f"over {first} in {one}" for one in over)]]
        for case in cases:
            for name, model in case["models"].items():
                row = [case["runtime"], name, f"{model['median']:.3f}"]
                row += [f"{model['lower']:.3f}-{model['upper']:.3f}", f"{model['speedup']:.2f}x"]
                for one in over:
                    own = one == case["runtime"]
                    ratio = model.get("speedup" if own else f"speedup_over_{one}")
                    row.append("-" if ratio is None else f"{ratio:.2f}x")
                rows.append(row)
        lines += [title, _aligned(rows), ""]
    rows = [["runtime", "model", "bytes", "ratio", "peak MB", "running MB", "before MB"]]
    for entry in found["memory"]:
        amounts = [_megabytes(entry.get(key)) for key in ("peak", "running", "start")]
        size = [f"{entry['bytes']:,}", f"{entry['bytes_ratio']:.2f}x"]
        rows.append([entry["runtime"], entry["model"], *size, *amounts])
    lines += ["file (in PyTorch: float32 weights) and memory of a process", _aligned(rows)]
    for one in found["quality"]:
        value = f"perplexity {one['perplexity']:.4f} on {one['text']}"
        lines.append(f"{one['model']} in {one['runtime']}: {value}")
    for one in found["skipped"]:
        lines.append(f"skipped {one['runtime']}: {one['reason']}")
    return "\n".join(lines)


def _several(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _megabytes(count: int | None) -> str:
    return "-" if count is None else f"{count / 1e6:.0f}"


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        left = [cell.ljust(width) for cell, width in zip(row[:2], widths, strict=False)]
        right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join(left + right).rstrip())
    return "\n".join(lines)
