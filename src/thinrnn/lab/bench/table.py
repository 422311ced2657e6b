"""A comparison as text."""

from typing import Any

from thinrnn._table import table
from thinrnn.timing import TOO_NOISY

RUNTIME_NAMES = {
    "eager": "PyTorch eager",
    "compiled": "PyTorch compiled",
    "onnx": "ONNX Runtime",
    "int8": "ONNX Runtime int8",
    "best": "ONNX Runtime int8, best words",
    "c": "plain C",
    "executorch": "ExecuTorch",
    "litert": "LiteRT",
}


def case_title(case: dict[str, Any]) -> str:
    """Return "batch 1, 1 step, 1 thread, cold caches"."""
    parts = [f"batch {case['batch']}"]
    for noun in ("step", "thread"):
        count = case[f"{noun}s"]
        parts.append(f"{count} {noun}{'' if count == 1 else 's'}")
    return ", ".join([*parts, *(["cold caches"] if case["caches"] == "cold" else [])])


def headline_text(found: dict[str, Any]) -> str:
    """Return the fair comparison in one line, or an empty text if one model was timed."""
    head = found["headline"]
    if head is None:
        return ""
    runtime = RUNTIME_NAMES[head["runtime"]]
    dense = f"{head['over']}{' (untrained)' if found['untrained'] else ''}"
    ratio = f"{head['speedup']:.2f}x as fast as {dense}"
    if head["noisy"]:
        ratio = f"{ratio}, but {TOO_NOISY}: time again when the machine is idle"
    return f"{runtime}, {case_title(head)}: {head['model']} runs {ratio}"


def tables(found: dict[str, Any]) -> str:
    """Return the headline, a table for each shape and number of threads, one of sizes, the rest."""
    lines = [headline_text(found), ""] if found["headline"] else []
    by_title: dict[str, list[dict[str, Any]]] = {}
    for case in found["cases"]:
        by_title.setdefault(case_title(case), []).append(case)
    for title, cases in by_title.items():
        lines += [title, table(_rows(cases), "<<>"), ""]
    lines += ["file (in PyTorch: float32 weights)", table(_sizes(found["memory"]), "<<>"), ""]
    for one in found["quality"]:
        value = f"perplexity {one['perplexity']:.4f} on {one['text']}"
        lines.append(f"{one['model']} in {one['runtime']}: {value}")
    for one in found["skipped"]:
        lines.append(f"skipped {one['runtime']}: {one['reason']}")
    return "\n".join(lines) + ("\n" if lines[-1] else "")


def _rows(cases: list[dict[str, Any]]) -> list[list[str]]:
    """Return the rows of one table; ratios to other runtimes have columns where there are any."""
    first = next(iter(cases[0]["models"]))
    others = [case["runtime"] for case in cases if case["runtime"] in ("eager", "onnx")]
    others = others if len(cases) > 1 else []
    header = ["runtime", "model", "median ms", "quartiles", "speed-up"]
    rows = [[*header, *(f"over {first} in {one}" for one in others)]]
    for case in cases:
        for name, model in case["models"].items():
            row = [case["runtime"], name, f"{model['median']:.3f}"]
            speedup = "noisy" if model["noisy"] else f"{model['speedup']:.2f}x"
            row += [f"{model['lower']:.3f}-{model['upper']:.3f}", speedup]
            for one in others:
                key = "speedup" if one == case["runtime"] else f"speedup_over_{one}"
                row.append(f"{model[key]:.2f}x" if key in model else "-")
            rows.append(row)
    return rows


def _sizes(found: list[dict[str, Any]]) -> list[list[str]]:
    """Return the rows of file sizes, with the memory of a process where it was measured."""
    memory = {"start": "libraries MB", "peak": "peak MB", "running": "running MB"}
    shown = {key: text for key, text in memory.items() if any(key in one for one in found)}
    rows = [["runtime", "model", "bytes", "ratio", *shown.values()]]
    for one in found:
        row = [one["runtime"], one["model"], f"{one['bytes']:,}", f"{one['bytes_ratio']:.2f}x"]
        rows.append([*row, *(_megabytes(one.get(key)) for key in shown)])
    return rows


def _megabytes(count: int | None) -> str:
    return "-" if count is None else f"{count / 1e6:.0f}"
