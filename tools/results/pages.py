"""RESULTS.md, its appendix and figure, and the tables in README and docs, from results/.

The text of the pages is in templates/; every figure in them comes from a file.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from thinrnn.lab.run.files import write_atomic
from tools.results import (
    calibration,
    curve,
    gate_variance,
    highway_step,
    minutes,
    planned,
    robustness,
    rows,
    step_runtimes,
    tables,
    through_norms,
    trainers,
    trust,
    voice_in_c,
    zoo,
)
from tools.results.calibration import Calibration
from tools.results.cpu import Cpu
from tools.results.runs import Results, millions, scores_of, spread

PLACE = re.compile(r"(<!-- ([\w ]+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)
FILLED = (  # pages with places to fill in: <!-- NAME --> ... <!-- end of NAME -->
    "README.md",
    "docs/trust.md",
    "docs/zoo.md",
    "docs/peers.md",
    "docs/how-to/norms.md",
    *(
        f"docs/how-to/{name}.md"
        for name in (
            *("which-size-for-my-cpu", "int8", "streaming", "recurrent-highway"),
            *("phones-and-boards", "plain-c", "trainers", "distributed", "several-sizes"),
            "prune-without-training",
        )
    ),
)
CURVE, MINUTES = "rhn/rhn-curve.svg", "minutes.md"
WORDS = 10_000  # of the Penn Treebank, so rows of the output layer


def write_pages(root: Path) -> list[Path]:
    """Write all pages; return the files that have changed."""
    changed = []
    for path, content in pages(root).items():
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content)
            changed.append(path)
    return changed


def pages(root: Path) -> dict[Path, str]:
    """Return what the pages of a repository should contain."""
    folder = root / "results"
    results, cpu, tried = Results.read(folder), Cpu.read(folder), trust.read(folder)
    render = partial(_render, results, cpu, folder)
    pruned = Calibration.read(folder)
    found = {
        root / "RESULTS.md": render("RESULTS.md"),
        folder / MINUTES: render("minutes.md"),
        folder / CURVE: curve.svg(results),
        **{folder / path: content for path, content in pruned.figures().items()},
    }
    places: dict[str, Callable[[], str]] = {
        "results": lambda: render("headlines.md"),
        "highway step": lambda: render("highway_step.md"),
        "highway runs": lambda: render("highway_runs.md"),
        "step runtimes": lambda: render("step_runtimes.md"),
        "voice in c": lambda: render("voice_in_c.md"),
        "pretrained": lambda: render("pretrained.md"),
        "cpu summary": lambda: render("cpu.md"),
        "cpu batches": lambda: cpu.batches() if cpu else "",
        "cpu gains": lambda: cpu.gains() if cpu else "",
        "trust": lambda: trust.table(tried) if tried else "",
        "zoo": lambda: zoo.table(folder),
        "peers": lambda: zoo.peers(folder),
        "through norms": lambda: through_norms.table(folder),
        "cpu stream": lambda: cpu.stream() if cpu else "",
        **{name: partial(trainers.table, folder, name) for name in trainers.TABLES},
    }
    for path in (root / name for name in FILLED):
        if path.exists():
            found[path] = PLACE.sub(
                lambda at: f"{at[1]}{places[at[2]]().strip() or 'Not measured yet.'}\n{at[3]}",
                path.read_text(encoding="utf-8"),
            )
    return found


def _render(results: Results, cpu: Cpu | None, folder: Path, template: str) -> str:
    """Return a template filled in; tables, figures and scores are functions of it."""

    def score(name: str, kind: str = "small", which: str = "test") -> str:
        """Return one score over the seeds of a run: "valid" or "test", "em" or "f1"."""
        found = results.figures(name, kind)
        if found is None:
            return "(not run yet)"
        return spread(found.first if which in ("valid", "em") else found.second)

    def sizes(name: str, kind: str = "small") -> str:
        found = results.figures(name, kind)
        return "(not run yet)" if found is None else found.sizes

    def weights(name: str, kind: str = "small") -> str:
        found = results.figures(name, kind)
        return "(not run yet)" if found is None else millions(found.weights)

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # Markdown, written from our own files
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(
        paper_table=lambda chosen, *more, **look: tables.paper_table(
            chosen, results, *more, **look
        ),
        own_table=lambda chosen, *more, **look: tables.own_table(chosen, results, *more, **look),
        headline_table=lambda: tables.headline_table(results),
        score=score,
        sizes=sizes,
        weights=weights,
        mult_adds=lambda: mult_adds(results),
        stored=lambda: stored(results),
        rows=rows,
        cpu=cpu,
        steps=highway_step.read(folder),
        highway_step=highway_step,
        gradients=gate_variance.read(folder),
        gate_variance=gate_variance,
        grid=robustness.read(folder),
        robustness=robustness,
        runtimes=step_runtimes.read(folder),
        stacks=step_runtimes.read(folder, step_runtimes.STACKS),
        step_runtimes=step_runtimes,
        voice=voice_in_c.read(folder),
        voice_in_c=voice_in_c,
        planned_table=lambda: planned.table(planned.read(folder), results),
        timed=minutes.read(folder),
        minutes=minutes,
        minutes_table=lambda: minutes.table(results),
        curve=CURVE,
        pruned=Calibration.read(folder),
        calibration=calibration,
    )


def mult_adds(results: Results) -> str:
    """Return, in a sentence, the mult-adds a token of the stacked LSTMs, the paper's and ours."""
    parts = []
    dense = paper_mult_adds("1500-1500-1500")
    for row in rows.LSTM:
        ours = results.figures(row.run, row.kind)
        if row.paper is not None and row.kind == "small" and ours is not None and ours.macs:
            theirs = paper_mult_adds(row.paper.sizes)
            parts.append(
                f"{row.label} {millions(theirs)} in the paper ({dense / theirs:.1f} times fewer), "
                f"{millions(ours.macs)} here ({dense / ours.macs:.1f} times fewer)"
            )
    return "; ".join([f"dense {millions(dense)}", *parts])


def paper_mult_adds(sizes: str) -> int:
    """Return the mult-adds a token of an untied LSTM with two layers, as in 251-296-247."""
    inputs, first, second = map(int, sizes.split("-"))
    return 4 * first * (inputs + first) + 4 * second * (first + second) + WORDS * second


def stored(results: Results) -> str:
    """Return the models in results/models and what they reach as loaded."""
    lines = []
    for name, run in results.runs.items():
        if model := run.get("stored"):
            scores = ", ".join(f"{score:.2f}" for score in scores_of(model))
            size = f"{model['bytes'] / 2**20:.2f} MiB"
            weights = millions(model["weights"])
            path = f"[{name}](results/models/{name})"
            lines.append([path, model["precision"], size, weights, scores])
    return tables.markdown(("model", "precision", "folder", "weights", "scores"), lines)
