"""Tables of what `thinrnn bench` found, for RESULTS.md, the README and the how-to pages."""

from dataclasses import dataclass

from tools.results.cpu import RATIOS, Cpu
from tools.results.markdown import markdown

RUNTIMES = {
    "eager": "PyTorch eager",
    "compiled": "PyTorch compiled",
    "onnx": "ONNX Runtime float32",
    "int8": "ONNX Runtime int8",
    "best": "ONNX Runtime int8, best 10 words of the last step",
}
WHAT = (
    "Eager PyTorch rearranges the weights of the dense model on each call, which is most of what "
    "one step takes, and is slower than ONNX Runtime on large matrices besides: a ratio over it "
    "flatters the small model. Both in ONNX Runtime, prepared alike, is fair. Two threads on two "
    "cores leave nothing for the rest of the machine; quartiles, in RESULTS.md, say how steady a "
    "time is."
)
FILE_ASKED, LOSS_ASKED = 42, 0.005


def section(cpu: Cpu | None) -> str:
    """Return the part of RESULTS.md; nothing if nothing was measured."""
    if cpu is None:
        return ""
    command = f"Measured by\n\n```shell\n{cpu.found['command']}\n```"
    parts = ["## Speed on a CPU", cpu.about, command, ratios(cpu, asked=True), WHAT]
    for threads in cpu.threads:
        for steps, caches in ((30, "warm"), (1, "warm"), (1, "cold")):
            parts += [_title(threads, steps, caches), times(cpu, threads, steps, caches)]
    return "\n\n".join([*parts, "Files and memory of a process that runs one model:", sizes(cpu)])


def contents(cpu: Cpu | None) -> dict[str, str]:
    """Return what stands in the places of other pages, by name; nothing if nothing was measured."""
    parts = {"summary": summary, "batches": batches, "gains": gains, "stream": stream}
    return {f"cpu {name}": "" if cpu is None else part(cpu) for name, part in parts.items()}


def summary(cpu: Cpu) -> str:
    """Return the ratios, with what is compared with what."""
    return "\n\n".join([cpu.about, ratios(cpu), WHAT])


def batches(cpu: Cpu) -> str:
    """Return what a batch of 10 with 30 steps takes on one thread."""
    return times(cpu, cpu.threads[0], 30, "warm")


def ratios(cpu: Cpu, *, asked: bool = False) -> str:
    """Return how many times faster the small model is, in pairs of runtimes."""
    head = ["dense over small", *(_threads(count) for count in cpu.threads)]
    lines = [
        [row.label, *row.shown, *[""] * (len(cpu.threads) - len(row.shown)), row.verdict]
        for row in rows(cpu)
    ]
    if asked:
        return markdown([*head, f"asked, on {_threads(cpu.threads[0])}"], lines)
    return markdown(head, [line[:-1] for line in lines])


@dataclass(frozen=True)
class Row:
    """A figure that was asked for: as shown, per number of threads, and whether it is reached."""

    label: str
    shown: list[str]
    asked: str = ""
    reached: bool = True

    @property
    def verdict(self) -> str:
        if not self.asked:
            return "reported"
        return f"{self.asked}: {'reached' if self.reached else '**missed**'}"


def rows(cpu: Cpu) -> list[Row]:
    """Return all figures that were asked for and are there."""
    found = []
    for one in RATIOS:
        label = f"10 x 30: {one.label}" if one.steps == 30 else one.label
        values = [cpu.ratio(one, count) for count in cpu.threads]
        shown = [_times(value) for value in values]
        if one.asked is None or values[0] is None:
            found.append(Row(label, shown))
        else:
            found.append(Row(label, shown, f"{one.asked:g}x", values[0] >= one.asked))
    file, loss = cpu.file_ratio, cpu.loss
    if file is not None:
        label = "file, dense float32 over small int8"
        found.append(Row(label, [_times(file)], f"{FILE_ASKED}x", file >= FILE_ASKED))
    if loss is not None:
        label, most = "perplexity of the small model, int8 over float32", f"{LOSS_ASKED:.1%}"
        found.append(Row(label, [f"{loss:+.2%}"], f"at most +{most}", loss <= LOSS_ASKED))
    return found


def missed(cpu: Cpu | None) -> list[str]:
    """Return a line for each figure that is not what was asked for."""
    bad = [] if cpu is None else [row for row in rows(cpu) if not row.reached]
    return [f"- speed on a CPU, {row.label}: {row.shown[0]}, asked: {row.asked}." for row in bad]


def times(cpu: Cpu, threads: int, steps: int, caches: str) -> str:
    """Return milliseconds of both models in each runtime."""
    lines = []
    for runtime, label in RUNTIMES.items():
        one = cpu.time(cpu.dense, runtime, threads, steps, caches)
        other = cpu.time(cpu.small, runtime, threads, steps, caches)
        if one is not None and other is not None:
            ratio = _times(one["median"] / other["median"])
            lines.append([label, _spread(one), _spread(other), ratio])
    return markdown(["", "dense, ms (quartiles)", "small, ms (quartiles)", "ratio"], lines)


def sizes(cpu: Cpu) -> str:
    """Return bytes of files and memory."""
    lines = []
    for entry in cpu.found["memory"]:
        if entry["runtime"] != "compiled":  # the same files as eager, and no memory of its own
            kind = "dense" if entry["model"] == cpu.dense else "small"
            shown = [_megabytes(entry.get(key)) for key in ("bytes", "peak", "running", "start")]
            lines.append([RUNTIMES[entry["runtime"]], kind, *shown])
    head = ["", "model", "file, MB", "peak, MB", "running, MB", "before there is a model, MB"]
    return markdown(head, lines)


def gains(cpu: Cpu) -> str:
    """Return what 8 bits give: the small model in float32 and in int8."""
    lines = []
    for runtime in ("onnx", "int8"):
        cells = [RUNTIMES[runtime], _megabytes(cpu.bytes(cpu.small, runtime))]
        for steps in (30, 1):
            found = cpu.time(cpu.small, runtime, cpu.threads[0], steps, "warm")
            cells.append("-" if found is None else _milliseconds(found["median"]))
        value = cpu.perplexity(runtime)
        lines.append([*cells, "-" if value is None else f"{value:.2f}"])
    return markdown(["", "file, MB", "10 x 30, ms", "one step, ms", "perplexity"], lines)


def stream(cpu: Cpu) -> str:
    """Return what a step of a stream takes, with warm caches and with cold ones."""
    lines = []
    for runtime, label in RUNTIMES.items():
        cells = [label]
        for caches in ("warm", "cold"):
            for model in (cpu.dense, cpu.small):
                found = cpu.time(model, runtime, cpu.threads[0], 1, caches)
                cells.append("-" if found is None else _milliseconds(found["median"]))
        if set(cells[1:]) != {"-"}:
            lines.append(cells)
    return markdown(["one step, ms", "dense", "small", "dense, cold", "small, cold"], lines)


def _title(threads: int, steps: int, caches: str) -> str:
    what = "Batch 10, 30 steps" if steps == 30 else "A stream: batch 1, one step"
    return f"{what}, {_threads(threads)}{', cold caches' if caches == 'cold' else ''}:"


def _threads(count: int) -> str:
    return f"{count} thread" if count == 1 else f"{count} threads"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}x"


def _spread(found: dict[str, float]) -> str:
    low, high = _milliseconds(found["lower"]), _milliseconds(found["upper"])
    return f"{_milliseconds(found['median'])} ({low} to {high})"


def _milliseconds(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def _megabytes(count: int | None) -> str:
    return "-" if count is None else f"{count / 1e6:.1f}"
