"""The top of the report: where the run stands, the big numbers, and the table behind them."""

import math
from collections.abc import Callable, Mapping
from html import escape

from thinrnn.lab.command import command
from thinrnn.lab.report import numbers
from thinrnn.lab.report.page import cards, section, table
from thinrnn.lab.report.read import KINDS, Run, Summary
from thinrnn.lab.report.svg import tag

_MOST_GROUPS = 12


def header(run: Run) -> str:
    """Returns the run's name, what it was, and for a run in progress how far it is."""
    config = run.config
    environment = config.get("environment")
    device = environment.get("device") if isinstance(environment, Mapping) else None
    facts = [
        str(config.get("recipe") or "").replace("_", " "),
        f"preset {config['preset']}" if config.get("preset") else "",
        f"seed {config['seed']}" if config.get("seed") is not None else "",
        f"on {device}" if device else "",
    ]
    parts = [
        tag("p", "thinrnn report", class_="eyebrow"),
        tag("h1", escape(run.name)),
        tag("p", escape(" · ".join(fact for fact in facts if fact)), class_="facts"),
    ]
    if not run.finished:
        parts.append(tag("p", escape(_progress(run)), class_="running", role="status"))
    if run.damaged_lines:
        lines = ", ".join(str(n) for n in run.damaged_lines[:5])
        more = " and others" if len(run.damaged_lines) > 5 else ""
        parts.append(
            tag(
                "p",
                f"metrics.jsonl has lines that could not be read and are left out: {lines}{more}.",
                class_="warning",
            )
        )
    return tag("header", "\n".join(parts))


def headline(run: Run) -> str:
    """Returns the number cards and the table of dense, small and control model."""
    return section("headline", "Result" if run.finished else "So far", _cards(run), _table(run))


def quality(models: Mapping[str, Summary]) -> tuple[str, Callable[[Summary], float]]:
    """Returns the number to compare by: F1, test perplexity where all have it, or validation."""
    if models and all(math.isfinite(m.f1) for m in models.values()):
        return "F1", lambda m: m.f1
    if models and all(math.isfinite(m.test_perplexity) for m in models.values()):
        return "test perplexity", lambda m: m.test_perplexity
    return "validation perplexity", lambda m: m.valid_perplexity


def conditions(model: Summary) -> str:
    """Returns how a model was timed: batch 1, 35 steps, 1 thread."""
    facts = []
    if math.isfinite(model.batch):
        facts.append(f"batch\u00a0{numbers.count(model.batch)}")
    for amount, name in ((model.steps, "step"), (model.threads, "thread")):
        if math.isfinite(amount):
            facts.append(f"{numbers.count(amount)}\u00a0{name}{'' if amount == 1 else 's'}")
    return ", ".join(facts)


def _progress(run: Run) -> str:
    state = "still running" if run.is_running else "stopped before its end"
    more = "" if run.is_running else f"; go on with {command('train', '--resume', run.folder)}"
    if not run.epochs:
        return f"{state}: no epoch finished yet{more}"
    last = run.epochs[-1]
    spent = f", {numbers.duration(last.seconds)}" if math.isfinite(last.seconds) else ""
    return f"{state}: epoch {last.epoch} ({last.phase} phase{spent}){more}"


def _cards(run: Run) -> str:
    small, dense = run.summaries.get("small"), run.summaries.get("dense")
    if small is None:
        return _cards_so_far(run)
    name, measure = quality(run.summaries)
    others = [f"{k} {numbers.perplexity(measure(m))}" for k, m in _others(run).items()]
    items = [
        ("Weights", numbers.short(small.weights), ""),
        (name[0].upper() + name[1:], numbers.perplexity(measure(small)), ", ".join(others)),
    ]
    if math.isfinite(small.em):
        others = [f"{k} {numbers.perplexity(m.em)}" for k, m in _others(run).items()]
        items.append(("Exact match", numbers.perplexity(small.em), ", ".join(others)))
    if dense is not None:
        items[0] = (
            "Weights",
            f"{numbers.short(dense.weights)} → {numbers.short(small.weights)}",
            f"{numbers.percent(numbers.ratio(small.weights, dense.weights))} of the dense model",
        )
        gain = numbers.ratio(dense.milliseconds, small.milliseconds)
        if math.isfinite(gain):
            times = f"{numbers.milliseconds(dense.milliseconds)} → "
            times += f"{numbers.milliseconds(small.milliseconds)}, {conditions(small)}"
            items.append(("Speed-up", numbers.times(gain), times))
    if not math.isnan(small.difference):
        note = "largest change of an output, gated against small model"
        items.append(("Verified difference", numbers.power(small.difference), note))
    return cards(items)


def _cards_so_far(run: Run) -> str:
    items = []
    gated = run.phase("gated")
    if gated:
        last = gated[-1]
        kept, size = sum(last.kept.values()), sum(last.sizes.values())
        if size:
            note = f"{numbers.percent(kept / size)} of {numbers.count(size)}"
            items.append(("Neurons kept", numbers.count(kept), note))
        if math.isfinite(last.params):
            goal = f"target {numbers.short(last.target)}" if math.isfinite(last.target) else ""
            items.append(("Parameters left", numbers.short(last.params), goal))
    for phase in ("gated", "dense", "control"):
        epochs = run.phase(phase)
        if epochs:
            last = epochs[-1]
            note = f"{phase}, validation, epoch {last.epoch}"
            name, value = "Perplexity", last.valid_perplexity
            if run.is_reader:
                name, value = "F1", last.f1
            items.append((name, numbers.perplexity(value), note))
    return cards(items) if items else ""


def _others(run: Run) -> dict[str, Summary]:
    return {kind: run.summaries[kind] for kind in ("dense", "control") if kind in run.summaries}


def _table(run: Run) -> str:
    models = {kind: run.summaries[kind] for kind in KINDS if kind in run.summaries}
    if not models:
        return ""
    compare = "dense" in models and "small" in models
    rows: list[list[str]] = []

    def add(
        name: str,
        get: Callable[[Summary], float],
        write: Callable[[float], str],
        relate: Callable[[float, float], str],
    ) -> None:
        values = {kind: get(model) for kind, model in models.items()}
        if all(math.isnan(v) for v in values.values()):
            return
        row = [name, *(write(v) for v in values.values())]
        rows.append([*row, relate(values["small"], values["dense"])] if compare else row)

    def share(small: float, dense: float) -> str:
        return numbers.percent(numbers.ratio(small, dense))

    def rise(small: float, dense: float) -> str:
        return numbers.change(numbers.ratio(small, dense) - 1)

    add("exact match (EM)", lambda m: m.em, numbers.perplexity, rise)
    add("F1", lambda m: m.f1, numbers.perplexity, rise)
    if not run.is_reader:
        add("perplexity, validation", lambda m: m.valid_perplexity, numbers.perplexity, rise)
        add("perplexity, test", lambda m: m.test_perplexity, numbers.perplexity, rise)
    groups = list(dict.fromkeys(group for m in models.values() for group in m.neurons))
    if len(groups) <= _MOST_GROUPS:
        for group in groups:
            add(f"neurons, {group}", _neurons(group), numbers.count, share)
    elif groups:
        add(f"neurons, {len(groups)} groups", _all_neurons, numbers.count, share)
    add("weights", lambda m: m.weights, numbers.count, share)
    add("parameters", lambda m: m.params, numbers.count, share)
    add("mult-adds per step", lambda m: m.macs, numbers.count, share)
    add("bytes", lambda m: m.bytes, numbers.count, share)
    add("time per call", lambda m: m.milliseconds, numbers.milliseconds, share)
    add("time per call, ONNX", lambda m: m.onnx_milliseconds, numbers.milliseconds, _nothing)
    if compare:
        dense = models["dense"].milliseconds
        add("speed-up", lambda m: numbers.ratio(dense, m.milliseconds), numbers.times, _nothing)
    class_ = "result" if compare else ""
    head = ["", *models, *(["small / dense"] if compare else [])]
    whole = table(head, rows, caption="Dense, small and control model", class_=class_)
    if len(groups) > _MOST_GROUPS:
        rows = []
        for group in groups:
            add(group, _neurons(group), numbers.count, share)
        inner = table(head, rows, caption="Neurons per group")
        whole += tag("details", f"<summary>Neurons per group</summary>{inner}")
    return whole


def _nothing(small: float, dense: float) -> str:
    return ""


def _neurons(group: str) -> Callable[[Summary], float]:
    return lambda model: float(model.neurons.get(group, math.nan))


def _all_neurons(model: Summary) -> float:
    return float(sum(model.neurons.values())) if model.neurons else math.nan
