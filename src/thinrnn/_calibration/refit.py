"""Least squares for the columns that stay.

    W x + b  is to become  V y_S + c,  with y what the pruned model reads, and often y = x

The best V is W M with M = (E[x y_S'] + r I_S) inv(E[y_S y_S'] + r I). The ridge r pulls V towards
the old columns W_S, not towards zero: with nothing removed V = W, whatever r.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn._calibration.matrices import Matrix
from thinrnn._calibration.moments import Moments, rows_read

# Ridges, as parts of the mean second moment; the held-out calls choose.
RIDGES = (1e-10, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
ROUNDING = 1e-14  # errors this much apart, as parts of the output's energy, are equal


@dataclass(frozen=True)
class Signals:
    """Moments of what a matrix reads before (x) and after pruning (y)."""

    xx: Moments
    xy: Moments
    yy: Moments

    @staticmethod
    def same(moments: Moments) -> "Signals":
        """Return the moments where the pruned model reads what the original one reads."""
        return Signals(moments, moments, moments)


def signals_of(
    model: nn.Module, pruned: nn.Module, matrices: dict[str, Matrix], calls: Iterable[Any]
) -> Signals:
    """Return the moments of what some matrices read in both models, side by side as one matrix."""
    xx, xy, yy = Moments(), Moments(), Moments()
    for call in calls:
        both = (rows_read(one, matrices, call) for one in (model, pruned))
        x, y = (torch.cat(list(rows.values()), 1) for rows in both)
        xx.add(x)
        xy.add(x, y)
        yy.add(y)
    return Signals(xx, xy, yy)


@dataclass(frozen=True)
class Fit:
    """New columns for a matrix and what they bring.

    Attributes:
        weight: The matrix (O, P); columns that are gone are as they were.
        shift: What to add to the bias (O,), or None where there is no bias.
        dropped: Relative error of the held-out output when columns are only dropped.
        refitted: The same with the new columns.
    """

    weight: Tensor
    shift: Tensor | None
    dropped: float
    refitted: float


def refit(
    weight: Tensor,
    stays: Tensor,
    fit: Signals,
    check: Signals,
    *,
    has_bias: bool,
    free: bool = True,
) -> Fit:
    """Return the best columns for a matrix that keeps some.

    Args:
        weight: The matrix as it was (O, P).
        stays: The columns that stay, as indices.
        fit: Moments to fit.
        check: Moments over held-out calls, which choose the ridge.
        has_bias: Whether the means of what goes may move into a bias.
        free: Whether the columns that stay may change; if not, only the bias does.
    """
    W, S = weight.double(), stays
    Q = W.T @ W  # (P, P)
    error_of = _Error(Q, S, check, has_bias)
    keep = torch.eye(len(Q), dtype=Q.dtype, device=Q.device)[:, S]  # M that only drops columns
    best, error = keep, error_of(keep)
    dropped = error
    rounding = ROUNDING * error_of.without
    for ridge in RIDGES if free else ():
        M = solve(fit, S, ridge, centred=has_bias)
        if M is None:
            continue
        now = error_of(M)
        if now < error - rounding:
            best, error = M, now
    energy = max(error_of.without, 1e-30)
    V = W @ best
    new = W.clone()
    new[:, S] = V
    shift = None
    if has_bias:
        mean_x, mean_y = fit.xy.means()
        shift = W @ mean_x - V @ mean_y[S]
    return Fit(new, shift, dropped / energy, error / energy)


def solve(signals: Signals, stays: Tensor, ridge: float, *, centred: bool) -> Tensor | None:
    """Return the best M (P, |S|) for a ridge, or None where rounding leaves no solution."""
    A_xy = signals.xy.second(centred=centred)[:, stays]
    A_yy = signals.yy.second(centred=centred)[stays][:, stays]
    keep = torch.eye(len(A_xy), dtype=A_xy.dtype, device=A_xy.device)[:, stays]
    load = ridge * (float(A_yy.diagonal().mean()) + 1e-30)
    loaded = A_yy + load * torch.eye(len(stays), dtype=A_xy.dtype, device=A_xy.device)
    factor, failed = torch.linalg.cholesky_ex(loaded)
    return None if failed else torch.cholesky_solve((A_xy + load * keep).T, factor).T


class _Error:
    """The mean square of W x - W M y_S, in terms of Q = W'W; `without` is that of W x alone."""

    def __init__(self, Q: Tensor, S: Tensor, signals: Signals, centred: bool) -> None:
        self.Q = Q
        self.without = float((Q * signals.xx.second(centred=centred)).sum())
        self.xy = signals.xy.second(centred=centred)[:, S]
        self.yy = signals.yy.second(centred=centred)[S][:, S]

    def __call__(self, M: Tensor) -> float:
        QM = self.Q @ M
        return self.without + float((QM * (M @ self.yy - 2 * self.xy)).sum())
