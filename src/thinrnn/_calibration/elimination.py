"""Which neurons to remove first: optimal brain surgeon on whole neurons.

The matrices that read a group compute y = W x, with x of covariance A. Without the columns D the
best that the others can do is least squares, and the error that remains is

    tr( W_D  inv(inv(A)_DD)  W_D' )

Neurons go in the order of the least such error. After each step W is what least squares makes of
it, and inv(A) loses the rows and columns D. Only Q = W'W is kept, so memory is the square of the
group's size however many rows W has.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

STEPS = 256  # a larger group loses several neurons at a time


@dataclass
class Reading:
    """What one matrix has to do with a group: moments and weights of the group's own columns.

    Columns are ordered by neuron, k for each: `inverse` is inv(A) and `weights` W'W, both (nk, nk).
    A matrix whose columns must not change has no inverse; `covariance` serves for it.
    """

    covariance: Tensor
    weights: Tensor
    inverse: Tensor | None

    @staticmethod
    def of(
        second: Tensor, weight: Tensor, columns: Tensor, *, damping: float, free: bool
    ) -> "Reading":
        """Return the part of a matrix that belongs to a group."""
        flat = columns.flatten()
        A = second[flat.clamp(min=0)][:, flat.clamp(min=0)]
        W = weight[:, flat.clamp(min=0)].double()
        missing = (flat < 0).nonzero().flatten()  # stand-ins that nobody reads
        if len(missing):
            W[:, missing] = 0
            A[missing] = 0
            A[:, missing] = 0
        diagonal = A.diagonal()
        A = A + torch.diag(torch.full_like(diagonal, damping * float(diagonal.mean()) + 1e-30))
        return Reading(A, W.T @ W, _inverse(A) if free else None)


def eliminate(readings: list[Reading], size: int) -> tuple[Tensor, Tensor]:
    """Return the neurons in the order in which they go, and the error that each adds.

    Errors never fall along the order: a neuron cannot seem cheaper than those that went before it.
    """
    n = size
    alive = torch.arange(n)
    order, errors = [], []
    dropped = [torch.zeros(r.weights.shape[0], dtype=torch.float64) for r in readings]
    block = max(1, n // STEPS)
    while len(alive):
        score = torch.zeros(len(alive), dtype=torch.float64)
        for reading, cross in zip(readings, dropped, strict=True):
            score += _scores(reading, cross, len(alive))
        worst = torch.topk(score, min(block, len(alive)), largest=False, sorted=True).indices
        order.append(alive[worst])
        errors.append(score[worst])
        stays = torch.ones(len(alive), dtype=torch.bool)
        stays[worst] = False
        for i, reading in enumerate(readings):
            dropped[i] = _remove(reading, dropped[i], worst, stays, len(alive))
        alive = alive[stays]
    return torch.cat(order), torch.cat(errors).clamp(min=0).cummax(0).values


def _scores(reading: Reading, cross: Tensor, n: int) -> Tensor:
    """Return the error that removing each neuron would add."""
    k = reading.weights.shape[0] // n
    Q = _blocks(reading.weights, n, k)  # (n, k, k)
    if reading.inverse is None:
        own = (Q * _blocks(reading.covariance, n, k)).sum((1, 2))
        return own + 2 * cross.view(n, k).sum(1)
    if k == 1:
        return (Q / _blocks(reading.inverse, n, 1).clamp(min=1e-300)).flatten()
    solved: Tensor = torch.linalg.solve(_blocks(reading.inverse, n, k), Q)  # (n, k, k)
    return solved.diagonal(0, 1, 2).sum(1)


def _blocks(matrix: Tensor, n: int, k: int) -> Tensor:
    """Return the blocks (n, k, k) on the diagonal of a matrix (nk, nk)."""
    if k == 1:
        return matrix.diagonal().reshape(n, 1, 1)
    return matrix.view(n, k, n, k).diagonal(0, 0, 2).permute(2, 0, 1)


def _remove(reading: Reading, cross: Tensor, gone: Tensor, stays: Tensor, n: int) -> Tensor:
    """Take neurons out of a reading, in place; return what the others have to do with them."""
    k = reading.weights.shape[0] // n
    D = (gone[:, None] * k + torch.arange(k)).flatten()
    S = stays.repeat_interleave(k).nonzero().flatten()
    Q, A, H = reading.weights, reading.covariance, reading.inverse
    if H is None:
        # the error of dropping both: what is lost correlates with what was lost before
        cross = (cross + (Q[:, D] * A[:, D]).sum(1))[S]
        reading.weights, reading.covariance = Q[S][:, S], A[S][:, S]
        return cross
    B = torch.linalg.solve(H[D][:, D], H[D][:, S])  # (|D|, |S|)
    QB = Q[S][:, D] @ B
    reading.weights = Q[S][:, S] - QB - QB.T + B.T @ Q[D][:, D] @ B
    reading.inverse = H[S][:, S] - H[S][:, D] @ B
    return cross[S]


def _inverse(A: Tensor) -> Tensor:
    return torch.cholesky_inverse(torch.linalg.cholesky(A))
