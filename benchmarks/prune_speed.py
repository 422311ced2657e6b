"""How long pruning from calibration data takes: a language model of two LSTM layers of 1500.

    python -m benchmarks.prune_speed

    groups       found on one short text
    statistics   the calls run, moments of what each matrix reads are summed
    scores       the neurons in the order in which they go
    prune        selection, least squares, compaction, verification, outputs on held-out calls

Weights are random: they take the same time whatever they are. The processor's time is that of all
threads; it tells how long pruning takes on a machine that does nothing else.
"""

import itertools
import resource
import time

import torch

from benchmarks.record import parser, write_record
from thinrnn._calibration.prune import Calibration
from thinrnn._surgery.count import count
from thinrnn.lab.recipes.language_model.model import LanguageModel, find_plan


def main() -> None:
    arguments = parser(__doc__, "../calibration/prune-speed-cpu.json")
    arguments.add_argument("--hidden", type=int, nargs="+", default=[1500, 1500])
    arguments.add_argument("--words", type=int, default=10_000)
    arguments.add_argument("--batches", type=int, default=20)
    arguments.add_argument("--batch", type=int, default=10)
    arguments.add_argument("--steps", type=int, default=30)
    arguments.add_argument("--params", type=float, default=0.5)
    arguments.add_argument("--threads", type=int, default=2)
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    embedding, *hidden = options.hidden[0], *options.hidden
    model = LanguageModel(options.words, embedding=embedding, hidden=tuple(hidden)).eval()
    shape = (options.steps, options.batch)
    calls = [torch.randint(options.words, shape) for _ in range(options.batches)]
    marks, cpu = [time.perf_counter()], [time.process_time()]
    plan = find_plan(model)
    marks.append(time.perf_counter())
    cpu.append(time.process_time())
    calibration = Calibration(model, calls, plan=plan)
    marks.append(time.perf_counter())
    cpu.append(time.process_time())
    calibration.errors("reconstruct")
    marks.append(time.perf_counter())
    cpu.append(time.process_time())
    small = calibration.prune(params=options.params)
    marks.append(time.perf_counter())
    cpu.append(time.process_time())
    steps = ("groups", "statistics", "scores", "prune")
    seconds, cpu_seconds = (
        {s: round(b - a, 2) for s, (a, b) in zip(steps, itertools.pairwise(m), strict=True)}
        | {"all": round(m[-1] - m[0], 2)}
        for m in (marks, cpu)
    )
    for step, taken in seconds.items():
        print(f"{step:<12}{taken:8.1f} s, processor {cpu_seconds[step]:8.1f} s", flush=True)
    write_record(
        "how long pruning from calibration data takes",
        options,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        params={"before": count(model).params, "after": count(small).params},
        peak_megabytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    )


if __name__ == "__main__":
    main()
