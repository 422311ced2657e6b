"""sweep: one pass of statistics, several sizes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from thinrnn._calibration.criteria import Loss, Score
from thinrnn._calibration.distill import Kind
from thinrnn._calibration.prune import Calibration
from thinrnn._calibration.report import Agreement, pruning_report
from thinrnn._gates.sizes import What
from thinrnn._surgery.count import count
from thinrnn._table import table
from thinrnn.errors import TargetError
from thinrnn.plan import Plan
from thinrnn.timing import benchmark


@dataclass(frozen=True)
class Swept:
    """One size of a sweep.

    Attributes:
        size: The part of the parameters or mult-adds that was to stay.
        model: The small model.
        params: Its parameters.
        macs: Its mult-adds per step.
        agreement: Its outputs against the original's, on held-out calls.
        milliseconds: Median CPU time of one call on one thread.

    Example:
        >>> model, calls = nn.LSTM(4, 16, num_layers=2), [torch.randn(20, 8, 4) for _ in range(5)]
        >>> whole, half = thinrnn.sweep(model, calls, sizes=[0.5], seconds=0.01)
        >>> half.params < whole.params and half.agreement.error > whole.agreement.error
        True
    """

    size: float
    model: nn.Module
    params: int
    macs: int
    agreement: Agreement
    milliseconds: float


@dataclass(frozen=True)
class Sweep:
    """The sizes of a sweep, the original first; prints as a table.

    Attributes:
        rows: One for each size.

    Example:
        >>> model, calls = nn.LSTM(4, 16, num_layers=2), [torch.randn(20, 8, 4) for _ in range(5)]
        >>> table = thinrnn.sweep(model, calls, sizes=[0.75, 0.5], seconds=0.01)
        >>> print(str(table).splitlines()[0])
        size  parameters  mult-adds   error  cosine    ms  faster
        >>> smallest = table.rows[-1].model  # plain torch modules
    """

    rows: tuple[Swept, ...]

    def __iter__(self) -> Iterator[Swept]:
        return iter(self.rows)

    def __str__(self) -> str:
        head = ("size", "parameters", "mult-adds", "error", "cosine", "ms", "faster")
        first = self.rows[0].milliseconds
        cells = [
            head,
            *(
                (
                    f"{r.size:.0%}",
                    f"{r.params:,}",
                    f"{r.macs:,}",
                    f"{r.agreement.error:.2%}",
                    f"{r.agreement.cosine:.4f}",
                    f"{r.milliseconds:.2f}",
                    f"{first / r.milliseconds:.2f}x",
                )
                for r in self.rows
            ),
        ]
        return table(cells, ">", rule=True)

    def plot(self, path: str | Path) -> Path:
        """Draw error and CPU time against size into a file (.svg, .png, .pdf), and return its path.

        Raises:
            MissingExtraError: Matplotlib is not installed.
        """
        from thinrnn._extras import require

        require("report", "matplotlib")
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 3.2), layout="constrained")
        error, time = figure.subplots(1, 2)
        sizes = [100 * r.params / self.rows[0].params for r in self.rows]
        error.plot(sizes, [100 * r.agreement.error for r in self.rows], "o-")
        error.set(xlabel="parameters, % of the original", ylabel="error of the outputs, %")
        time.plot(sizes, [r.milliseconds for r in self.rows], "o-", color="tab:orange")
        time.set(xlabel="parameters, % of the original", ylabel="CPU time of a call, ms")
        for axes in (error, time):
            axes.set_xlim(105, 0)
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
        figure.savefig(path)
        return Path(path)


def sweep(
    model: nn.Module,
    data: Iterable[Any],
    *,
    sizes: Sequence[float] = (0.75, 0.5, 0.33, 0.25),
    of: What = "params",
    score: Score = "reconstruct",
    loss: Loss | None = None,
    sequential: bool = False,
    outputs: Kind = "auto",
    plan: Plan | None = None,
    seconds: float = 1.0,
) -> Sweep:
    """Return small models of several sizes from one pass of statistics, with error and CPU time.

    The command `thinrnn sweep` is another thing: it trains a preset with many settings.

    Args:
        model: A trained model.
        data: Example calls, as for `prune`.
        sizes: Parts of the parameters (or mult-adds) to keep.
        of: "params" or "macs": what the sizes are parts of.
        score: As for `prune`.
        loss: As for `prune`.
        sequential: As for `prune`.
        outputs: As for `prune`.
        plan: As for `prune`.
        seconds: How long to time each model, on the first call.

    Returns:
        A table that prints; its rows hold the models, `plot(path)` draws it.

    Raises:
        CalibrationError: There is no call, or what the model reads is not finite.
        TargetError: A size cannot be reached.

    >>> model = nn.LSTM(4, 16, num_layers=2)
    >>> calls = [torch.randn(20, 8, 4) for _ in range(5)]
    >>> table = sweep(model, calls, sizes=[0.75, 0.5], seconds=0.01)
    >>> [row.size for row in table]
    [1.0, 0.75, 0.5]
    """
    calibration = Calibration(model, data, plan=plan)
    if of not in ("params", "macs"):
        raise TargetError(f"of='{of}': sizes are parts of 'params' or of 'macs'.")
    small = {}
    for size in sizes:
        params, macs = (size, None) if of == "params" else (None, size)
        small[size] = calibration.prune(
            params=params, macs=macs, score=score, loss=loss, sequential=sequential, outputs=outputs
        )
    models = {1.0: calibration.model, **small}
    times = benchmark(
        {f"{size:.0%}": one for size, one in models.items()},
        calibration.calls[0],
        seconds=seconds,
    )
    rows = []
    for size, one in models.items():
        size_of = count(one, calibration.calls[0])
        same = Agreement(0.0, 1.0, 1.0)
        agreement = pruning_report(one).agreement if size in small else same
        timing = times[f"{size:.0%}"].median
        rows.append(Swept(size, one, size_of.params, size_of.macs, agreement, timing))
    return Sweep(tuple(rows))
