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
CUT_BELOW = 0.75  # part of the neurons in the matrices; with fewer left, they are cut out


@dataclass
class Reading:
    """What one matrix has to do with a group: moments and weights of the group's own columns.

    Columns are ordered by neuron, k for each: `inverse` is inv(A) and `weights` W'W, both (nk, nk).
    A matrix whose columns must not change has no inverse; `covariance` serves for it, and `cross`
    is what the error of dropping each column gains from the columns that are gone.
    """

    covariance: Tensor
    weights: Tensor
    inverse: Tensor | None
    cross: Tensor

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
        return Reading(A, W.T @ W, _inverse(A) if free else None, torch.zeros_like(diagonal))

    def scores(self, n: int) -> Tensor:
        """Return the error that removing each of the n neurons would add."""
        k = self.weights.shape[0] // n
        Q = _blocks(self.weights, n, k)  # (n, k, k)
        if self.inverse is None:
            own = (Q * _blocks(self.covariance, n, k)).sum((1, 2))
            return own + 2 * self.cross.view(n, k).sum(1)
        if k == 1:
            return (Q / _blocks(self.inverse, n, 1).clamp(min=1e-300)).flatten()
        solved: Tensor = torch.linalg.solve(_blocks(self.inverse, n, k), Q)  # (n, k, k)
        return solved.diagonal(0, 1, 2).sum(1)

    def remove_(self, neurons: Tensor, n: int) -> None:
        """Account for neurons that go; their rows and columns stay, and are of no use."""
        k = self.weights.shape[0] // n
        D = (neurons[:, None] * k + torch.arange(k)).flatten()
        Q, A, H = self.weights, self.covariance, self.inverse
        if H is None:
            # the error of dropping both: what is lost correlates with what was lost before
            self.cross += (Q[:, D] * A[:, D]).sum(1)
            return
        B = torch.linalg.solve(H[D][:, D], H[D])  # (|D|, nk)
        G = Q[:, D] - B.T @ Q[D][:, D] / 2  # Q becomes Q - G B - (G B)'
        Q.addmm_(torch.cat([G, B.T], 1), torch.cat([B, G.T]), alpha=-1)
        H.addmm_(H[:, D], B, alpha=-1)
        for matrix in (Q, H):  # exact zeros, not rounding errors that grow
            matrix[D] = 0
            matrix[:, D] = 0
        H[D, D] = 1

    def cut_(self, stays: Tensor) -> None:
        """Keep only some of the neurons (n,) in the matrices."""
        S = stays.repeat_interleave(self.weights.shape[0] // len(stays)).nonzero().flatten()
        self.weights = self.weights[S][:, S]
        self.cross = self.cross[S]
        if self.inverse is None:
            self.covariance = self.covariance[S][:, S]
        else:
            self.inverse = self.inverse[S][:, S]


def eliminate(readings: list[Reading], size: int) -> tuple[Tensor, Tensor]:
    """Return the neurons in the order in which they go, and the error that each adds.

    Errors never fall along the order: a neuron cannot seem cheaper than those that went before it.
    """
    there = torch.arange(size)  # the neurons in the matrices
    gone = torch.zeros(size, dtype=torch.bool)  # of those
    order, errors = [], []
    block = max(1, size // STEPS)
    while len(there):
        score = torch.zeros(len(there), dtype=torch.float64)
        for reading in readings:
            score += reading.scores(len(there))
        score[gone] = torch.inf
        left = len(there) - int(gone.sum())
        worst = torch.topk(score, min(block, left), largest=False, sorted=True).indices
        order.append(there[worst])
        errors.append(score[worst])
        gone[worst] = True
        for reading in readings:
            reading.remove_(worst, len(there))
        if left - len(worst) <= CUT_BELOW * len(there):
            for reading in readings:
                reading.cut_(~gone)
            there, gone = there[~gone], gone[~gone]
    return torch.cat(order), torch.cat(errors).clamp(min=0).cummax(0).values


def _blocks(matrix: Tensor, n: int, k: int) -> Tensor:
    """Return the blocks (n, k, k) on the diagonal of a matrix (nk, nk)."""
    if k == 1:
        return matrix.diagonal().reshape(n, 1, 1)
    return matrix.view(n, k, n, k).diagonal(0, 0, 2).permute(2, 0, 1)


def _inverse(A: Tensor) -> Tensor:
    return torch.cholesky_inverse(torch.linalg.cholesky(A))
