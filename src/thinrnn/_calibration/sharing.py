"""How a size is shared between groups: by what more of each would cost at the outputs.

Scores tell which neurons of a group go first. They tell badly what the groups are worth against one
another, since errors add up over time, cancel, and meet those of other groups. So a first choice of
neurons is tried out: the readers are refitted and the outputs of some calls compared; then the same
with some more neurons gone from one group, for each group in turn. The scores of a group are scaled
by what was measured over what they had predicted, and the choice is made again. The best one stays.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn._calibration.criteria import DAMPING, Errors
from thinrnn._calibration.distill import Kind, distillation_loss
from thinrnn._calibration.matrices import Matrix, columns_left
from thinrnn._calibration.moments import Moments
from thinrnn._calibration.refit import Signals, solve
from thinrnn._model.copying import copy_module
from thinrnn._model.isolation import run
from thinrnn._model.tree import call_arguments, tensors_in
from thinrnn._penalties.selection import Masks
from thinrnn.plan import named_tensors

ROUNDS = 3
MORE = 0.15  # part of a group's neurons that go to see what they cost
MASKED = 1e4  # instead of infinity, as in logits of what cannot be
LEAST = 1e-3  # of the error: what a group costs that seems to cost nothing, or less
VECTORS, CALLS = 256, 8  # outputs that are compared: as many vectors, but from no more calls


def shared(errors: Errors, choose: Callable[[Errors], Masks], error_of: "OutputError") -> Masks:
    """Return the neurons that stay when each group's last ones cost as much per parameter.

    Args:
        errors: What removing each neuron costs, in units that compare within a group.
        choose: Returns the best neurons of all groups by such errors, within the size.
        error_of: Measures the outputs without some neurons.
    """
    scales = dict.fromkeys(errors, 1.0)
    tried: list[tuple[float, Masks]] = []
    for step in range(ROUNDS + 1):
        chosen = choose({name: scales[name] * error for name, error in errors.items()})
        base = error_of(chosen)
        tried.append((base, chosen))
        for name, error in errors.items() if step < ROUNDS else ():
            kept = chosen[name].nonzero().flatten()
            least = kept[error[kept].argsort(stable=True)][: math.ceil(MORE * len(kept))]
            predicted = float(error[least].sum())
            if len(least) == len(kept) or predicted <= 0:
                continue
            fewer = chosen[name].clone()
            fewer[least] = False
            rise = max(error_of.with_group(name, fewer) - base, LEAST * base)
            if rise <= 0:
                continue
            measured = rise / predicted
            scales[name] = measured if step == 0 else math.sqrt(scales[name] * measured)
    return min(tried, key=lambda one: one[0])[1]


class OutputError:
    """How far a model's outputs are without some neurons, readers refitted.

    In units of `distillation_loss`, above what the model has against itself: a mean square over the
    variance, or the divergence between distributions.
    """

    def __init__(
        self,
        model: nn.Module,
        matrices: dict[str, Matrix],
        moments: dict[str, Moments],
        calls: Sequence[Any],
        outputs: Kind = "auto",
    ) -> None:
        self.matrices, self.moments, self.kind = matrices, moments, outputs
        self.original, self.model = named_tensors(model), copy_module(model)
        self.tensors = named_tensors(self.model)
        self.calls: list[Any] = []
        self.expected: list[list[Tensor]] = []
        for call in calls[:CALLS]:
            if sum(len(one[0]) for one in self.expected if one) < VECTORS:
                self.calls.append(call_arguments(call))
                self.expected.append(self._outputs(self.calls[-1]))

    def __call__(self, chosen: Masks) -> float:
        """Return the error where these neurons are left."""
        self.chosen = chosen
        self._cut_(self.matrices.values(), chosen)
        return self._measured()

    def with_group(self, group: str, mask: Tensor) -> float:
        """Return the error where one group differs from the last choice."""
        readers = [m for m in self.matrices.values() if group in m.columns]
        shared_biases = {m.bias for m in readers if m.bias}
        readers += [
            m for m in self.matrices.values() if m.bias in shared_biases and group not in m.columns
        ]
        names = {name for m in readers for name in (m.name, m.bias) if name}
        before = {name: self.tensors[name].detach().clone() for name in names}
        self._cut_(readers, self.chosen | {group: mask})
        found = self._measured()
        with torch.no_grad():
            for name, tensor in before.items():
                self.tensors[name].copy_(tensor)
        return found

    @torch.no_grad()
    def _cut_(self, matrices: Any, chosen: Masks) -> None:
        """Set columns of some matrices to zero; the others and the biases make up for them."""
        for matrix in matrices:
            if matrix.bias:
                self.tensors[matrix.bias].copy_(self.original[matrix.bias])
        for matrix in matrices:
            W = self.original[matrix.name].flatten(1)
            S = columns_left(matrix, W.shape[1], chosen).to(W.device)
            signals, centred = Signals.same(self.moments[matrix.name]), bool(matrix.bias)
            M = solve(signals, S, DAMPING, centred=centred) if matrix.is_free else None
            new = torch.zeros_like(W)
            new[:, S] = W[:, S] if M is None else W @ M.to(W)
            self.tensors[matrix.name].copy_(new.view_as(self.tensors[matrix.name]))
            if matrix.bias:
                mean = self.moments[matrix.name].means()[0].to(W)
                self.tensors[matrix.bias].add_((W - new) @ mean)

    def _measured(self) -> float:
        total, count = 0.0, 0
        for call, expected in zip(self.calls, self.expected, strict=True):
            for x, y in zip(expected, self._outputs(call), strict=True):
                own, found = (distillation_loss(z, x, outputs=self.kind) for z in (x, y))
                total += float(found - own) * len(x)
                count += len(x)
        return total / max(count, 1)

    def _outputs(self, call: Any) -> list[Tensor]:
        """Return the outputs of a call as vectors (N, P) in float64, all finite."""
        found = (t.detach() for t in tensors_in(run(self.model, call)) if t.is_floating_point())
        return [
            t.double().nan_to_num(0.0, MASKED, -MASKED).reshape(-1, t.shape[-1] if t.dim() else 1)
            for t in found
        ]
