"""What the benchmarks measured of models pruned from calibration data, as tables and figures."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.results.svg import svg_of
from tools.results.tables import markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = "calibration"
DETECTOR, ENCODER = "voice-detector", "speaker-encoder"
COLOURS = {
    "reconstruct": "#0969da",
    "activation": "#1a7f37",
    "taylor": "#8250df",
    "magnitude": "#bc4c00",
    "sequential": "#0a3069",
    "distilled": "#bf3989",
}
DASHES = {True: "o-", False: "x:"}  # refitted, dropped
QUALITIES = {  # of a pretrained model: (key, column)
    DETECTOR: (("auc", "AUC"), ("agreement", "same decision as the original")),
    ENCODER: (
        ("cosine", "cosine to the original"),
        ("same_speaker", "cosine within a speaker"),
        ("other_speaker", "between speakers"),
        ("auc", "AUC of telling them apart"),
    ),
}


class Calibration:
    """The files of results/calibration, by name."""

    def __init__(self, found: dict[str, dict[str, Any]]) -> None:
        self.found = found

    @classmethod
    def read(cls, folder: Path) -> "Calibration":
        files = sorted((folder / FOLDER).glob("*.json"))
        return cls({path.stem: json.loads(path.read_bytes()) for path in files})

    def __getitem__(self, name: str) -> dict[str, Any] | None:
        return self.found.get(name)

    def named(self, start: str) -> dict[str, dict[str, Any]]:
        """Return the files whose names begin alike, by the rest of the name."""
        return {n.removeprefix(start): f for n, f in self.found.items() if n.startswith(start)}

    def figures(self) -> dict[str, str]:
        """Return the files to draw, by their path below results/."""
        drawn = {f"one-shot-{name}": one_shot(f) for name, f in self.named("one-shot-").items()}
        if self[DETECTOR] and self[ENCODER]:
            drawn["pretrained"] = self.pretrained()
        return {f"{FOLDER}/{name}.svg": svg_of(figure) for name, figure in drawn.items()}

    def models(self, name: str) -> str:
        """Return what became of a pretrained model at each size."""
        record, speed = self.found[name], self[f"{name}-speed-cpu"]
        columns = QUALITIES[name]
        runtimes = ("pytorch", "onnx") if speed else ()
        whole = speed["models"]["original"] if speed else {}
        lines = []
        for model, row in sorted(record["models"].items(), key=lambda item: -item[1]["params"]):
            line = [model, f"{row['params']:,}", *(f"{row[key]:.4f}" for key, _ in columns)]
            times = speed["models"].get(timed_as(model), {}) if speed else {}
            for runtime in runtimes:
                key = f"{runtime}_ms"
                is_timed = key in times and key in whole
                line.append(f"{whole[key] / times[key]:.2f}x" if is_timed else "-")
            lines.append(line)
        head = ["model", "parameters", *(column for _, column in columns)]
        names = {"pytorch": "faster in PyTorch", "onnx": "in ONNX Runtime"}
        return markdown([*head, *(names[runtime] for runtime in runtimes)], lines)

    def pretrained(self) -> "Figure":
        """Return quality against parameters, for both pretrained models."""
        from matplotlib.figure import Figure

        drawn = Figure(figsize=(9, 3.6), layout="constrained")
        for axes, name in zip(drawn.subplots(1, 2), (DETECTOR, ENCODER), strict=True):
            models = self.found[name]["models"]
            key, label = QUALITIES[name][0]
            whole = models["original"]["params"]
            for kind, colour in COLOURS.items():
                rows = [row for model, row in models.items() if kind_of(model) == kind]
                points = sorted((100 * row["params"] / whole, row[key]) for row in rows)
                if points:
                    axes.plot(*zip(*points, strict=True), "o-", color=colour, label=kind)
            axes.axhline(models["original"][key], color="#8c959f", linewidth=1)
            axes.set(title=name.replace("-", " "), xlabel="parameters, %", ylabel=label)
            axes.set_xlim(102, 0)
            axes.grid(alpha=0.4)
            axes.legend(frameon=False)
        return drawn


def kind_of(model: str) -> str:
    """Return the score by which a model was pruned, or "distilled".

    >>> kind_of("50% reconstruct"), kind_of("50% distilled"), kind_of("original")
    ('reconstruct', 'distilled', 'original')
    """
    return model.split()[-1]


def timed_as(model: str) -> str:
    """Return the model of the same size that was timed: refitting and teaching change no size."""
    return re.sub(r" (distilled|sequential)$", " reconstruct", model)


def one_shot_table(record: dict[str, Any]) -> str:
    """Return what each score left, as pruned and after training, a column per size."""
    sizes = sorted({row["macs"] for row in record["one_shot"]}, reverse=True)
    rows: dict[str, dict[float, dict[str, float]]] = {}
    for row in record["one_shot"]:
        name = f"`{row['score']}`, {'refitted' if row['refitted'] else 'dropped'}"
        rows.setdefault(name, {})[row["macs"]] = row
    others = {
        "`reconstruct`, trained as long as the gates": record["as_long"],
        "gates": best_gates(record),
    }
    for name, found in others.items():
        for row in found:
            rows.setdefault(name, {})[row["macs"]] = row
    lines = [
        [name, *(_both(found[size]) if size in found else "-" for size in sizes)]
        for name, found in rows.items()
    ]
    columns = (f"{size:.0%} of the mult-adds" for size in sizes)
    return markdown(["pruned → trained", *columns], lines)


def best_gates(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the best model of each size, where gates were trained at several rates."""
    best = min if record["model"]["better"] == "lower" else max
    sizes = dict.fromkeys(row["macs"] for row in record["gates"])
    return [
        best((r for r in record["gates"] if r["macs"] == macs), key=lambda row: row["trained"])
        for macs in sizes
    ]


def worth_training(record: dict[str, Any]) -> tuple[str, str]:
    """Return at which sizes training made the default's models better, and at which it did not."""
    sign = 1 if record["model"]["better"] == "higher" else -1
    found: dict[bool, list[str]] = {True: [], False: []}
    for row in record["one_shot"]:
        if (row["score"], row["refitted"]) == ("reconstruct", True):
            found[sign * (row["trained"] - row["pruned"]) > 0].append(f"{row['macs']:.0%}")
    return " and ".join(found[True]), " and ".join(found[False])


def _both(row: dict[str, float]) -> str:
    return f"{row['pruned']:.2f} → {row['trained']:.2f}"


def one_shot(record: dict[str, Any]) -> "Figure":
    """Return the metric over the mult-adds: as pruned on the left, after training on the right."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(9.5, 4), layout="constrained")
    rows, model = record["one_shot"], record["model"]
    for axes, key in zip(drawn.subplots(1, 2), ("pruned", "trained"), strict=True):
        for score in dict.fromkeys(row["score"] for row in rows):
            for refitted, dash in DASHES.items():
                line = [r for r in rows if (r["score"], r["refitted"]) == (score, refitted)]
                label = f"{score}, {'refitted' if refitted else 'dropped'}"
                _plot(axes, line, key, dash, color=COLOURS[score], label=label)
        if key == "trained":
            _plot(axes, best_gates(record), key, "s-", color="black", label="gates that learn")
            _plot(
                axes, record["as_long"], key, "D--", color="#0a3069", label="reconstruct, as long"
            )
            axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
        axes.axhline(record["dense"], color="#8c959f", linewidth=1)
        axes.set(xlabel="mult-adds, %", ylabel=model["metric"].replace("_", " "))
        axes.set_title("as pruned" if key == "pruned" else f"after {record['steps']} steps")
        if model["better"] == "lower":
            axes.set_yscale("log")
        axes.set_xlim(102, 0)
        axes.grid(alpha=0.4, which="both")
    return drawn


def _plot(axes: Any, rows: list[dict[str, Any]], key: str, dash: str, **look: Any) -> None:
    line = sorted(rows, key=lambda row: -row["real_macs"])
    if line:
        axes.plot([100 * r["real_macs"] for r in line], [r[key] for r in line], dash, **look)


def start_table(record: dict[str, Any]) -> str:
    """Return what gates reached from both starts, over seeds."""
    found: dict[tuple[float, int], dict[str, str]] = {}
    for row in record["means"]:
        deviation = "" if row["deviation"] is None else f" ± {row['deviation']:.2f}"
        place = found.setdefault((row["macs"], row["gate_steps"]), {})
        place[row["start"]] = f"{row['mean']:.2f}{deviation} ({row['seeds']} seeds)"
    lines = [
        [f"{macs:.0%}", str(steps), *(row.get(s, "-") for s in ("alike", "reconstruct"))]
        for (macs, steps), row in found.items()
    ]
    return markdown(["mult-adds", "steps with gates", "all alike", 'start="reconstruct"'], lines)
