"""RESULTS.md, and tables in the README and the docs, from the files in results/."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thinrnn.lab.run.files import write_atomic
from tools.results import cpu_pages, highway_step, minutes, operations, reading
from tools.results.cpu import Cpu
from tools.results.curve import width_curve
from tools.results.judge import judge, trend
from tools.results.markdown import markdown
from tools.results.places import filled_pages
from tools.results.read import Figures, Results, millions, place, quality
from tools.results.rows import ABLATION, BEYOND, HIGHWAY, HIGHWAY_CURVE, LSTM, Row
from tools.results.widths import against_iss, below_iss

PICTURES = ("ptb-paper", "ptb-thin", "ptb-rhn-paper")
CURVE = "rhn/rhn-curve.svg"
HEAD = (
    *("model", "paper: valid, test", "sizes", "weights"),
    *("ours: valid, test", "sizes", "weights", "verdict"),
)


def write_pages(root: Path) -> list[Path]:
    """Write RESULTS.md, and tables in README and docs; return the files that have changed."""
    changed = []
    for path, content in pages(root).items():
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            write_atomic(path, content)
            changed.append(path)
    return changed


def pages(root: Path) -> dict[Path, str]:
    """Return what the pages of a repository should contain."""
    results = Results.read(root / "results")
    notes = root / "results" / "NOTES.md"
    tried = notes.read_text(encoding="utf-8") if notes.exists() else ""
    cpu = Cpu.read(root / "results")
    steps, runs = highway_step.read(root / "results"), minutes.read(root / "results")
    found = {root / "RESULTS.md": results_page(results, tried, cpu, steps, runs)}
    curve = width_curve(results)
    if curve:
        found[root / "results" / CURVE] = curve
    contents = {
        "results": readme_tables(results),
        "highway step": highway_step.section(steps),
        "highway runs": short_table((*HIGHWAY, *HIGHWAY_CURVE), results),
        **cpu_pages.contents(cpu),
    }
    return found | filled_pages(root, contents)


def results_page(
    results: Results,
    tried: str = "",
    cpu: Cpu | None = None,
    steps: Sequence[dict[str, Any]] = (),
    runs: dict[str, Any] | None = None,
) -> str:
    """Return RESULTS.md; `tried` are notes written by hand, on what was tried and is next."""
    parts = [
        "# Results",
        "Written by `python -m thinrnn.results` from the files in [results](results), each of "
        "which has the command, the seed, the settings, the versions and the machine. The paper "
        "is [arXiv 1906.06847](https://arxiv.org/abs/1906.06847). Perplexities: lower is better; "
        "every choice was made on valid. Sizes are neurons of the input and of each layer; "
        "weights are counted without biases, as the paper counts them. Where several seeds were "
        "run, the mean and the standard deviation are given, the largest number of weights, and "
        "the sizes of the first. What was asked of a row was set before it was run.",
        "## Stacked LSTM on the Penn Treebank (the paper's table 1)",
        table_of(LSTM, results),
        "The control, the same shape from scratch under the same schedule, is missing in the "
        "paper. So is the dense model under NT-ASGD: the paper trains its pruned model by NT-ASGD "
        "and compares it with a dense one trained by plain SGD.",
        operations.section(results),
        "## Fixed penalties (the paper's table 2)",
        "Multiples of 0.08/N for the input and recurrent weights of layer 1 and layer 2; N is the "
        "number of training tokens. The paper repeats the test perplexity of its fourth row in "
        "the fifth; by the valid one it should be about 87.",
        table_of(ABLATION, results),
        trend(ABLATION, results),
        "## Recurrent highway networks on the Penn Treebank (the paper's table 3)",
        "Tied weights, one group for the width of the state and of the embedding. One seed each. "
        "Taught by models: with the weights of the dense model to begin with, and two models, one "
        "of them an LSTM, to learn from; taught alike is the same without these weights, so "
        "without the 120 epochs in which they were trained.",
        table_of(HIGHWAY, results),
        "Other widths, as in the paper's figure, in 40 epochs, our own ISS from the same weights; "
        "in the paper's columns stands what ISS reaches at the same width, from its own paper, "
        "which has no teachers and more epochs.",
        table_of(HIGHWAY_CURVE, results),
        below_iss(results),
        f"![Test perplexity against width](results/{CURVE})" if width_curve(results) else "",
        highway_step.section(steps),
        "## Machine reading: BiDAF on SQuAD v1.1, dev (the paper's table 4)",
        "EM and F1 in per cent, more is better; no round was chosen by its score, the averaged "
        "weights of the last step count. Sizes are the six LSTMs that are pruned, and at the end "
        "the two of the encoder where it is pruned too; weights are counted with biases, "
        "characters and words outside GloVe, but without GloVe.",
        markdown(reading.HEAD, reading.lines(results)),
        "## Beyond the paper",
        table_of(BEYOND, results),
        "## Where ours is worse",
        worse(
            results,
            cpu,
            [*against_iss(results), *highway_step.missed(steps), *timed(results, runs)],
        ),
        pictures(results),
        "## Stored models",
        stored(results),
        "## Time and memory",
        cost(results),
        minutes.section(runs),
        cpu_pages.section(cpu),
        f"## What was tried\n\n{tried.strip()}" if tried.strip() else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def readme_tables(results: Results) -> str:
    """Return the main rows, those that were run, of language models and of readers."""
    readers = reading.short_lines(results)
    tables = [
        short_table((*LSTM, *HIGHWAY, *BEYOND), results),
        *([markdown(reading.SHORT_HEAD, readers)] if readers else []),
    ]
    return "\n\n".join(tables)


def short_table(rows: Sequence[Row], results: Results) -> str:
    """Return those rows of the language models that were run."""
    rows = [row for row in rows if results.figures(row.name, row.kind) is not None]
    if not rows:
        return "The runs on the Penn Treebank are not finished; see [RESULTS.md](RESULTS.md)."
    lines = []
    for row in rows:
        ours = results.figures(row.name, row.kind)
        assert ours is not None
        paper = "-" if row.paper is None else perplexities(row.paper)
        weights = "-" if row.paper is None else millions(row.paper.weights)
        lines.append([row.label, paper, weights, perplexities(ours), millions(ours.weights)])
    head = ("Penn Treebank", "paper: valid, test", "weights", "ours: valid, test", "weights")
    return markdown(head, lines)


def table_of(rows: tuple[Row, ...], results: Results) -> str:
    """Return rows side by side with the paper's."""
    lines = []
    for row in rows:
        ours, verdict = results.figures(row.name, row.kind), judge(row, results)
        cells = [row.label, *_cells(row.paper), *_cells(ours)]
        lines.append([*cells, "not yet run" if verdict is None else str(verdict)])
    return markdown(HEAD, lines)


def worse(results: Results, cpu: Cpu | None = None, others: Sequence[str] = ()) -> str:
    """Return a list of everything that is worse than the paper, a control or what was asked."""
    lines = []
    for row in (*LSTM, *ABLATION, *HIGHWAY, *HIGHWAY_CURVE, *BEYOND):
        verdict = judge(row, results)
        if verdict is not None and verdict.bad:
            label = f"multiples {row.label}" if row in ABLATION else row.label
            lines.append(f"- {label}: {'; '.join(verdict.bad)}.")
    for read in reading.READING:
        verdict = reading.judged(read, results)
        if verdict is not None and verdict.bad:
            lines.append(f"- {read.label}: {'; '.join(verdict.bad)}.")
    lines += [*operations.worse(results), *cpu_pages.missed(cpu), *others]
    return "\n".join(lines) or "In no row that has been run."


def timed(results: Results, runs: dict[str, Any] | None) -> list[str]:
    """Return what is to be said of the minutes of the pruned run, once there is one."""
    return minutes.missed(runs) if runs is not None or minutes.PRUNED in results.runs else []


def pictures(results: Results) -> str:
    """Return the pictures of the main runs, as in the paper's figure of the sparsity pattern."""
    shown = [name for name in PICTURES if name in results.pictures]
    if not shown:
        return ""
    about = (
        "Rows and columns of each matrix that are kept, and, beside it, the small matrix that is "
        "left, drawn to the same scale; matrices lie on their side."
    )
    images = [f"![What {name} keeps of each matrix](results/{place(name)}.svg)" for name in shown]
    return "\n\n".join(["## What is left of the matrices", about, *images])


def stored(results: Results) -> str:
    """Return the models in results/models and what they reach as loaded."""
    lines = [
        [
            f"[{name}](results/models/{name})",
            run["stored"]["precision"],
            f"{run['stored']['bytes'] / 2**20:.2f} MiB",
            millions(run["stored"]["weights"]),
            quality(run["stored"]),
        ]
        for name, run in results.runs.items()
        if "stored" in run
    ]
    if not lines:
        return "None yet."
    head = ("model", "precision", "folder", "weights", "valid, test as loaded")
    how = "Measure one again with `thinrnn eval results/models/NAME --data DIR --json`."
    return f"{markdown(head, lines)}\n\n{how}"


def cost(results: Results) -> str:
    """Return how long every phase took, and where; what was only tried comes last."""
    lines = []
    for name, run in sorted(results.runs.items(), key=lambda item: "-try-" in item[0]):
        machine = run["environment"].get("gpu") or run["environment"]["processor"]
        for kind, model in run["models"].items():
            memory = model.get("memory")
            lines.append(
                [
                    f"[{name}](results/{place(name)}.json)",
                    kind,
                    str(model["epochs"]),
                    f"{model['seconds'] / 60:.1f}",
                    "-" if memory is None else f"{memory / 2**30:.2f}",
                    machine,
                ]
            )
    if not lines:
        return "Nothing has been run yet."
    table = markdown(("run", "model", "epochs", "minutes", "GPU memory, GiB", "machine"), lines)
    about = (
        "Most runs shared the GPU with others, so their minutes are upper bounds; memory was not "
        "recorded at first. Where a teacher wrote texts (`written` in the settings), an epoch "
        "reads these too: with 9 of them it is as long as 10 epochs of the training text alone, "
        "with 19 as long as 20."
    )
    return f"{table}\n\n{about}"


def perplexities(figures: Figures) -> str:
    """Return valid, test; with the spread where there are several seeds."""
    if len(figures.valid) == 1:
        return ", ".join(
            "?" if math.isnan(p) else f"{p:.2f}" for p in (*figures.valid, *figures.test)
        )
    valid, test = (
        f"{statistics.fmean(values):.2f} ± {statistics.stdev(values):.2f}"
        for values in (figures.valid, figures.test)
    )
    return f"{valid}, {test} ({len(figures.valid)} seeds)"


def _cells(figures: Figures | None) -> list[str]:
    if figures is None:
        return ["-", "-", "-"]
    return [perplexities(figures), figures.sizes, millions(figures.weights)]
