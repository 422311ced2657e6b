"""The top of the report: the state of a run, the big numbers, and the tables behind them."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from thinrnn.lab.command import command
from thinrnn.lab.report import numbers
from thinrnn.lab.report.parts import Card, Table
from thinrnn.lab.report.read import Run, Summary, common_metric
from thinrnn.lab.verdicts import control_failure
from thinrnn.timing import NOISY

MOST_GROUPS = 12
RUNTIMES = {"onnx_milliseconds": "ONNX Runtime", "milliseconds": "PyTorch"}


def facts(run: Run) -> str:
    """Returns what a run is, in one line."""
    config = run.config
    environment = config.get("environment")
    device = environment.get("device") if isinstance(environment, Mapping) else None
    found = [
        str(config.get("recipe") or "").replace("_", " "),
        f"preset {config['preset']}" if config.get("preset") else "",
        f"seed {config['seed']}" if config.get("seed") is not None else "",
        f"on {device}" if device else "",
    ]
    return " · ".join(fact for fact in found if fact)


def progress(run: Run) -> str:
    """Returns how far an unfinished run is, an empty text for a finished one."""
    if run.finished:
        return ""
    state = "still running" if run.is_running else "stopped before its end"
    more = (
        "" if run.is_running else f"; continue it with {command('train', '--resume', run.folder)}"
    )
    if not run.epochs:
        return f"{state}: no epoch finished yet{more}"
    last = run.epochs[-1]
    spent = f", {numbers.duration(last['seconds'])}" if math.isfinite(last["seconds"]) else ""
    return f"{state}: epoch {last.epoch} ({last.phase} phase{spent}){more}"


def cards(run: Run) -> list[Card]:
    """Returns the big numbers of one run."""
    small, dense = run.summaries.get("small"), run.summaries.get("dense")
    if small is None:
        return _cards_so_far(run)
    found = [Card("Weights", numbers.short(small["weights"]), "")]
    if dense is not None:
        share = numbers.percent(numbers.ratio(small["weights"], dense["weights"]))
        change = f"{numbers.short(dense['weights'])} → {numbers.short(small['weights'])}"
        found = [Card("Weights", change, f"{share} of the dense model")]
    metric = common_metric([run])
    if metric:
        others = [
            f"{model_name(run, kind)} {numbers.score(model[metric.key])}"
            for kind, model in run.models.items()
            if kind != "small"
        ]
        found.append(Card(metric.title, numbers.score(small[metric.key]), ", ".join(others)))
    if dense is not None:
        key = time_key([run])
        if math.isfinite(numbers.ratio(dense[key], small[key])):
            times = f"{numbers.milliseconds(dense[key])} → {numbers.milliseconds(small[key])}"
            note = f"{times}, {conditions(small)}" if conditions(small) else times
            found.append(Card(f"Speed-up, {RUNTIMES[key]}", speedup(dense, small, key), note))
    if math.isfinite(small["difference"]):
        note = "largest change of an output, gated against small model"
        found.append(Card("Verified difference", numbers.power(small["difference"]), note))
    return found


def control_failed(run: Run) -> bool:
    """Returns whether the control did not learn, so that nothing may be compared with it."""
    numbers_of = {kind: summary.numbers for kind, summary in run.summaries.items()}
    return bool(control_failure(run.config, numbers_of))


def model_name(run: Run, kind: str) -> str:
    """Returns the name of a model in tables."""
    return "control failed" if kind == "control" and control_failed(run) else kind


def speedup(dense: Summary, model: Summary, key: str) -> str:
    """Returns how many times faster a model is, or that its times say nothing."""
    both = (dense, model)
    was_timed = all(math.isfinite(one[key]) for one in both)
    if was_timed and any(one[f"{key}_spread"] > NOISY for one in both):
        return "too noisy"
    return numbers.times(numbers.ratio(dense[key], model[key]))


def time_key(runs: Sequence[Run]) -> str:
    """Returns which times to compare: those of ONNX Runtime, if all models to compare have them.

    PyTorch spends much of its time between the operations of a small model, so its times say less
    about the size.
    """
    models = [m for run in runs for kind, m in run.models.items() if kind != "control"]
    measured = bool(models) and all(math.isfinite(m["onnx_milliseconds"]) for m in models)
    return "onnx_milliseconds" if measured else "milliseconds"


def conditions(model: Summary) -> str:
    """Returns how a model was timed: batch 1, 35 steps, 1 thread."""
    found = []
    if math.isfinite(model["batch"]):
        found.append(f"batch\u00a0{numbers.count(model['batch'])}")
    for amount, name in ((model["steps"], "step"), (model["threads"], "thread")):
        if math.isfinite(amount):
            found.append(f"{numbers.count(amount)}\u00a0{name}{'' if amount == 1 else 's'}")
    return ", ".join(found)


def result_tables(run: Run) -> list[Table]:
    """Returns dense, small and control model side by side; many groups have their own table."""
    models = run.models
    if not models:
        return []

    def of_all(key: str) -> list[float]:
        return [model[key] for model in models.values()]

    def rows_of(
        quantities: Iterable[tuple[str, list[float]]],
        write: numbers.Write,
        relate: numbers.Write = numbers.percent,
    ) -> list[list[str]]:
        rows = (_row(models, name, values, write, relate) for name, values in quantities)
        return [row for row in rows if row]

    groups = list(dict.fromkeys(group for m in models.values() for group in m.neurons))
    by_group = [
        (f"neurons, {group}", [float(m.neurons.get(group, math.nan)) for m in models.values()])
        for group in groups
    ]
    in_all = [float(sum(m.neurons.values())) or math.nan for m in models.values()]
    many = len(groups) > MOST_GROUPS
    counts = [(f"neurons, {len(groups)} groups", in_all)] if many else by_group
    counts += [(name, of_all(key)) for name, key in _COUNTS.items()]
    times = [(f"time per call, {name}", of_all(key)) for key, name in RUNTIMES.items()]
    rows = rows_of([(m.name, of_all(m.key)) for m in run.metrics], numbers.score, _rise)
    rows += rows_of(counts, numbers.count) + rows_of(times, numbers.milliseconds)
    if _compares(models):
        for key, name in RUNTIMES.items():
            if math.isfinite(numbers.ratio(models["dense"][key], models["small"][key])):
                gains = [speedup(models["dense"], model, key) for model in models.values()]
                rows.append([f"speed-up, {name}", *gains, ""])
    head = ["", *(model_name(run, kind) for kind in models)]
    head += ["small / dense"] if _compares(models) else []
    strong = head.index("small") if _compares(models) else None
    caption = "Dense, small and control model"
    tables = [Table(caption, head, rows, strong, stacks=True)]
    if many:
        rows = rows_of(by_group, numbers.count)
        tables.append(Table("Neurons per group", head, rows, strong, stacks=True))
    return tables


_COUNTS = {
    "weights": "weights",
    "parameters": "params",
    "mult-adds per step": "macs",
    "bytes": "bytes",
}


def _row(
    models: Collection[str],
    name: str,
    values: Sequence[float],
    write: numbers.Write,
    relate: numbers.Write,
) -> list[str]:
    """Returns the cells of one quantity, nothing if no model has it."""
    if all(map(math.isnan, values)):
        return []
    related = []
    if _compares(models):
        by_kind = dict(zip(models, values, strict=True))
        related = [relate(numbers.ratio(by_kind["small"], by_kind["dense"]))]
    return [name, *map(write, values), *related]


def _compares(models: Collection[str]) -> bool:
    return "dense" in models and "small" in models


def _rise(related: float) -> str:
    return numbers.change(related - 1)


def bars(run: Run) -> list[tuple[str, list[tuple[str, str, float]]]]:
    """Returns what to draw as bars, if there are several models to compare.

    Each quantity is a title and its bars: the model, its amount, and the length of the bar
    relative to the longest one.
    """
    if len(run.summaries) < 2:
        return []
    quantities = (
        ("Weights", "weights", numbers.short),
        ("Bytes", "bytes", numbers.size),
        ("Mult-adds per step", "macs", numbers.short),
        *((f"Time per call, {name}", key, numbers.milliseconds) for key, name in RUNTIMES.items()),
    )
    found = []
    for title, key, write in quantities:
        amounts = {k: m[key] for k, m in run.models.items() if math.isfinite(m[key])}
        longest = max(amounts.values(), default=0.0) or 1.0
        if amounts:
            found.append((title, [(k, write(v), v / longest) for k, v in amounts.items()]))
    return found


def _cards_so_far(run: Run) -> list[Card]:
    found = []
    gated = run.phase("gated")
    if gated:
        last = gated[-1]
        kept, size = sum(last.kept.values()), sum(last.sizes.values())
        if size:
            note = f"{numbers.percent(kept / size)} of {numbers.count(size)}"
            found.append(Card("Neurons kept", numbers.count(kept), note))
        if math.isfinite(last["params"]):
            goal = last["target"]
            note = f"target {numbers.short(goal)}" if math.isfinite(goal) else ""
            found.append(Card("Parameters left", numbers.short(last["params"]), note))
    for phase in ("gated", "dense", "control"):
        epochs = run.phase(phase)
        metrics = [m for m in run.metrics if epochs and math.isfinite(epochs[-1][m.key])]
        if metrics:
            value = numbers.score(epochs[-1][metrics[0].key])
            found.append(Card(metrics[0].title, value, f"{phase}, epoch {epochs[-1].epoch}"))
    return found
