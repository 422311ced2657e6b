"""The tables of models of public packages, and of small models through other pruning tools."""

import json
from pathlib import Path
from typing import Any

from tools.results.tables import markdown

ZOO, PEERS = "zoo.json", "peers.json"


def table(folder: Path) -> str:
    """Return what `benchmarks/zoo.py` found, model by model."""
    found = _read(folder / ZOO)
    if found is None:
        return ""
    lines = [_line(one) for one in found["models"]]
    head = ("model", "package", "recurrent layers", "can go", "error", "saved", "ONNX", "seconds")
    total = f"{found['works']} of {len(lines)} work, and {found['wrong']} are wrong."
    ran = [*found.get("earlier_commands", []), found["command"]]
    commands = ", then ".join(f"`{command}`" for command in ran)
    parts = [markdown((*head, ""), lines), f"{total} {commands}"]
    refused = [one for one in found["models"] if one.get("onnx", "yes") != "yes"]
    if refused:
        reasons = (f"- {one['model']}: {_reason(one['onnx'])}" for one in refused)
        parts += ["Why ONNX files are refused:", "\n".join(reasons)]
    return "\n\n".join(parts)


def _reason(message: str) -> str:
    """Return an error's message without its class and the words of torch."""
    reason = message.partition(": ")[2].partition(" (torch")[0].partition(" (unhinted")[0]
    return reason.rstrip(".") + "."


def _line(one: dict[str, Any]) -> list[str]:
    name = [one["model"], f"{one['package']} {one.get('version', '')}".strip()]
    if "saved" not in one:
        return [*name, *["-"] * 6, one["why"].partition(":")[0]]
    onnx = one.get("onnx", "not tried")
    return [
        *name,
        f"{one['covered']} of {one['recurrent']}",
        f"{100 * one['can_go']:.1f} %",
        f"{one['error']:.1e}",
        "yes" if one["saved"] else "no",
        onnx if onnx in ("yes", "not tried") else "refused",
        f"{one['seconds']:.1f}",
        "" if one["works"] else one.get("why", "wrong").partition(":")[0],
    ]


def peers(folder: Path) -> str:
    """Return what `benchmarks/peers.py` found: each tool with each model."""
    found = _read(folder / PEERS)
    if found is None:
        return ""
    tools = list(next(iter(found["models"].values())))
    lines = [
        [name, *(row[tool]["outcome"] for tool in tools)] for name, row in found["models"].items()
    ]
    counted = (
        f"{tool}: {sum(row[tool]['outcome'] == 'shrunk' for row in found['models'].values())}"
        for tool in tools
    )
    total = f"Shrunk: {'; '.join(counted)}. `{found['command']}`"
    return f"{markdown(('model', *tools), lines)}\n\n{total}"


def _read(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found
