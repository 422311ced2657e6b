"""What pruning from calibration data did, as plain data that prints as a table."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from thinrnn._table import table
from thinrnn.errors import PlanError


@dataclass(frozen=True)
class Agreement:
    """How near the small model's outputs are to the original's, over held-out calls.

    Attributes:
        error: Norm of the difference over the norm of the original's outputs.
        cosine: Mean cosine between output vectors.
        same_best: Share of output vectors whose largest entry is the same one.

    Example:
        >>> model, calls = nn.LSTM(4, 16, num_layers=2), [torch.randn(20, 8, 4) for _ in range(5)]
        >>> small = thinrnn.prune(model, calls, params=0.5)
        >>> 0 <= thinrnn.pruning_report(small).agreement.same_best <= 1
        True
    """

    error: float
    cosine: float
    same_best: float


@dataclass(frozen=True)
class ReaderFit:
    """One matrix that lost columns: the relative error of its output on held-out calls.

    Attributes:
        parameter: The matrix.
        dropped: Relative error with the columns dropped and means moved into the bias.
        refitted: Relative error with the columns that stay refitted.

    Example:
        >>> model, calls = nn.LSTM(4, 16, num_layers=2), [torch.randn(20, 8, 4) for _ in range(5)]
        >>> small = thinrnn.prune(model, calls, params=0.5)
        >>> [fit.parameter for fit in thinrnn.pruning_report(small).readers["l0"]]
        ['weight_hh_l0', 'weight_ih_l1']
    """

    parameter: str
    dropped: float
    refitted: float


@dataclass(frozen=True)
class PruningReport:
    """What `prune` kept and what it cost.

    Attributes:
        sizes: For each group, its size and how many neurons were kept.
        readers: For each group, the matrices that read it.
        agreement: The outputs on held-out calls.
        difference: Largest difference that the surgery itself made, as `verify` measures it.
        samples: The smallest number of vectors that any refitted matrix has read.
        held_out: How many calls were held out; 0 means that the calibration calls served.

    Example:
        >>> model, calls = nn.LSTM(4, 16, num_layers=2), [torch.randn(20, 8, 4) for _ in range(5)]
        >>> small = thinrnn.prune(model, calls, params=0.5)
        >>> report = thinrnn.pruning_report(small)  # print(report) shows a table
        >>> size, kept = report.sizes["l0"]
        >>> size, kept < size
        (16, True)
    """

    sizes: dict[str, tuple[int, int]]
    readers: dict[str, tuple[ReaderFit, ...]]
    agreement: Agreement
    difference: float
    samples: int
    held_out: int

    def __str__(self) -> str:
        rows = [("group", "size", "kept", "read by", "error dropped", "refitted")]
        for group, (size, kept) in self.sizes.items():
            readers = self.readers.get(group, ()) or (None,)
            for place, reader in enumerate(readers):
                first = (group, str(size), str(kept)) if place == 0 else ("", "", "")
                if reader is None:
                    rows.append((*first, "-", "-", "-"))
                else:
                    errors = (f"{reader.dropped:.2%}", f"{reader.refitted:.2%}")
                    rows.append((*first, reader.parameter, *errors))
        a = self.agreement
        calls = f"{self.held_out} held-out calls" if self.held_out else "the calibration calls"
        return (
            table(rows, "<>><>", rule=True)
            + f"\noutputs on {calls}: relative error {a.error:.2%}, mean cosine {a.cosine:.4f}, "
            f"same largest entry {a.same_best:.1%}"
        )


def set_report_(small: nn.Module, report: PruningReport) -> None:
    small.__dict__["_thinrnn_pruning"] = report


def pruning_report(small: nn.Module) -> PruningReport:
    """Return what `prune` did to make a small model.

    Args:
        small: A model that `prune` returned.

    Returns:
        The sizes, the errors, and how near the outputs are to the original's.

    Raises:
        PlanError: The model was not made by `prune`.

    >>> model, calls = nn.LSTM(4, 16, num_layers=2), [torch.randn(20, 8, 4) for _ in range(5)]
    >>> report = pruning_report(prune(model, calls, params=0.5))
    >>> report.difference < 1e-5  # cutting itself changes nothing
    True
    """
    report = small.__dict__.get("_thinrnn_pruning")
    if not isinstance(report, PruningReport):
        raise PlanError(
            f"this {type(small).__name__} was not made by prune, so there is no report on it."
        )
    return report


class Agreements:
    """Sums up how near the outputs of two models are, call by call."""

    def __init__(self) -> None:
        self.squares = self.energy = self.cosine = self.same = 0.0
        self.vectors = 0

    def add(self, expected: Tensor, found: Tensor) -> None:
        """Add an output of the original model and the small model's."""
        x, y = expected.double(), found.double()
        x, y = (t.reshape(-1, t.shape[-1] if t.dim() else 1) for t in (x, y))
        self.squares += float((x - y).square().sum())
        self.energy += float(x.square().sum())
        self.cosine += float(torch.cosine_similarity(x, y, dim=-1).sum())
        self.same += float((x.argmax(-1) == y.argmax(-1)).sum())
        self.vectors += len(x)

    def result(self) -> Agreement:
        n = max(self.vectors, 1)
        error = (self.squares / max(self.energy, 1e-30)) ** 0.5
        return Agreement(error, self.cosine / n, self.same / n)
