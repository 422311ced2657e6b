"""prune: a smaller model from a trained one and a few batches, without training.

calls ── moments of what each matrix reads ── scores ── selection ── refit ── compact
"""

import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn._calibration import criteria
from thinrnn._calibration.calls import calls_of
from thinrnn._calibration.distill import Kind
from thinrnn._calibration.matrices import Matrix, columns_left, find_matrices
from thinrnn._calibration.moments import collect
from thinrnn._calibration.refit import Fit, Signals, refit, signals_of
from thinrnn._calibration.report import (
    Agreement,
    Agreements,
    PruningReport,
    ReaderFit,
    set_report_,
)
from thinrnn._calibration.sensitivity import row_weights
from thinrnn._calibration.sharing import OutputError, shared
from thinrnn._discovery.find import find_groups
from thinrnn._gates.attach import attach_, attached
from thinrnn._gates.estimators import Fixed
from thinrnn._gates.sizes import Sizes
from thinrnn._layers.applications import applications
from thinrnn._model.copying import copy_module
from thinrnn._model.isolation import run
from thinrnn._model.tree import call_arguments, tensors_in
from thinrnn._penalties.limits import Limits, read_limits
from thinrnn._penalties.selection import Masks, select_neurons
from thinrnn._surgery.compact import compact
from thinrnn._surgery.verify import verify
from thinrnn.errors import CalibrationError, TargetError
from thinrnn.plan import Plan, named_tensors

MEASURED = ("reconstruct", "activation")  # scores that are errors
HELD_OUT = 0.2  # part of the calls that judge and choose ridges instead of being fitted


def prune(
    model: nn.Module,
    data: Iterable[Any],
    *,
    params: float | None = None,
    macs: float | None = None,
    keep: Mapping[str, int] | None = None,
    score: criteria.Score = "reconstruct",
    loss: criteria.Loss | None = None,
    sequential: bool = False,
    outputs: Kind = "auto",
    plan: Plan | None = None,
) -> nn.Module:
    """Return a smaller model, made from a trained one and a few batches without training.

    Neurons go whose removal costs least once the weights that stay have been refitted, by least
    squares, to give what they gave before. No labels are needed. The model is left as it is.

    Args:
        model: A trained model.
        data: Example calls as for `find_groups`: tensors, tuples of positional arguments or dicts
            of keyword arguments. A fifth of them, the last ones, is held out to judge the result.
        params: The parameters that may stay: a fraction up to 1, or a number.
        macs: The same for mult-adds per step.
        keep: A number of neurons for some groups, as in `keep={"lstm.l0": 96}`. Without `params`
            and `macs` all other groups stay whole.
        score: How neurons are ranked: "reconstruct", the error that is left after refitting;
            "activation", the mean square of a neuron's output times the squares of its readers;
            "magnitude", as `magnitude_`; "taylor", the squared slope of the loss along the gate.
        loss: For "taylor": a function of (output, example call) that returns a scalar.
        sequential: Refit once more, layer by layer, on what the pruned model itself computes. It
            helps where errors build up: deep models and small sizes.
        outputs: What the outputs are, see `distillation_loss`: they decide which groups lose more.
            Name "logits" and "binary".
        plan: The plan to work on; by default `find_groups(model, first call)`.

    Returns:
        A plain small model, as `compact` makes it; `pruning_report(small)` says what was done.

    Raises:
        CalibrationError: There is no call, or what the model reads is not finite.
        TargetError: The size cannot be reached, or no size is given.

    >>> model = nn.LSTM(4, 16, num_layers=2)
    >>> small = prune(model, [torch.randn(20, 8, 4) for _ in range(5)], keep={"l0": 8})
    >>> small.l0.hidden_size, small.l1.hidden_size
    (8, 16)
    """
    calibration = Calibration(model, data, plan=plan)
    return calibration.prune(
        params=params,
        macs=macs,
        keep=keep,
        score=score,
        loss=loss,
        sequential=sequential,
        outputs=outputs,
    )


class Calibration:
    """What a few calls tell about a model: enough to prune it to any size.

    Args:
        model: A trained model.
        data: Example calls, as for `prune`.
        plan: The plan to work on; by default `find_groups(model, first call)`.
    """

    def __init__(self, model: nn.Module, data: Iterable[Any], *, plan: Plan | None = None) -> None:
        self.calls = calls_of(data)
        held = max(1, round(HELD_OUT * len(self.calls))) if len(self.calls) > 1 else 0
        self.fitted = self.calls[: len(self.calls) - held]
        self.held = self.calls[len(self.calls) - held :]
        plan = find_groups(model, self.calls[0]) if plan is None else plan
        self.model = copy_module(model).eval()
        plan = plan.fitted(self.model)
        if not plan.applied:
            counts = applications(self.model, call_arguments(self.calls[0]))
            plan = replace(plan, applied=counts.per_step())
        matrices = find_matrices(self.model, plan)
        blind = [g.name for g in plan if not any(g.name in m.columns for m in matrices.values())]
        if len(blind) == len(plan) > 0:
            raise CalibrationError(
                f"the weights that read '{blind[0]}' cannot be refitted: under weight norm, remove "
                "it first (torch.nn.utils.parametrize.remove_parametrizations)."
            )
        self.plan = plan.without(*blind) if blind else plan
        self.sizes = Sizes(self.model, self.plan)
        self.moments = self.checks = collect(self.model, matrices, self.fitted)
        if held:
            self.checks = collect(self.model, matrices, self.held, first=len(self.fitted))
        self.matrices = {name: matrices[name] for name in self.moments if name in self.checks}
        self._warn()
        self._scores: dict[str, criteria.Errors] = {}

    def _warn(self) -> None:
        """Warn where the calls are too few, or say nothing about a group."""
        few = {n: m.count for n, m in self.moments.items() if m.count < len(m.means()[0])}
        if few:
            name, count = min(few.items(), key=lambda item: item[1])
            warnings.warn(
                f"{count} vectors are fewer than the columns of '{name}', so the fit leans on its "
                "regularisation: give more calibration data.",
                stacklevel=4,
            )
        for group in self.plan:
            reading = [m for m in self.matrices.values() if group.name in m.columns]
            spread = [self._spread(m, group.name) for m in reading]
            if spread and max(spread) == 0:
                warnings.warn(
                    f"the neurons of group '{group.name}' never vary in the calibration data; a "
                    "bias can replace them all. Is the data what the model meets in use?",
                    stacklevel=4,
                )

    def _spread(self, matrix: Matrix, group: str) -> float:
        variance = self.moments[matrix.name].second(centred=True).diagonal()
        owned = matrix.columns[group].flatten()
        return float(variance[owned[owned >= 0]].max())

    def errors(self, score: criteria.Score, loss: criteria.Loss | None = None) -> criteria.Errors:
        """Return what removing each neuron of each group costs, by one of the scores."""
        if score == "taylor":
            if loss is None:
                raise CalibrationError(
                    "score='taylor' needs loss=, a function of (output, example call)."
                )
            return criteria.taylor(self.model, self.plan, self.fitted, loss, self.matrices)
        if score not in self._scores:
            self._scores[score] = self._errors(score)
        return self._scores[score]

    def _errors(self, score: criteria.Score) -> criteria.Errors:
        if score == "magnitude":
            return criteria.magnitude(self.model, self.plan)
        known: dict[str, Callable[..., criteria.Errors]] = {
            "activation": criteria.activation,
            "reconstruct": criteria.reconstruct,
        }
        if score not in known:
            raise CalibrationError(
                f"score='{score}': it is one of reconstruct, activation, magnitude and taylor."
            )
        rows = row_weights(self.model, self.matrices, self.moments, self.fitted)
        return known[score](self.model, self.plan, self.matrices, self.moments, rows)

    def prune(
        self,
        *,
        params: float | None = None,
        macs: float | None = None,
        keep: Mapping[str, int] | None = None,
        score: criteria.Score = "reconstruct",
        loss: criteria.Loss | None = None,
        refitted: bool = True,
        sequential: bool = False,
        outputs: Kind = "auto",
    ) -> nn.Module:
        """Return a smaller model; arguments as for `thinrnn.prune`.

        With `refitted=False` columns are only dropped, for comparison.
        """
        errors = self.errors(score, loss)
        size: dict[str, Any] = {"params": params, "macs": macs, "keep": keep or {}}
        if score in MEASURED and (params is not None or macs is not None):
            calls = self.held or self.fitted
            error_of = OutputError(self.model, self.matrices, self.moments, calls, outputs)
            chosen = shared(errors, lambda scaled: self.chosen(scaled, **size), error_of)
        else:
            chosen = self.chosen(errors, **size)
        pruned = copy_module(self.model)
        self._shifts: dict[str, Tensor] = {}  # of biases, by the matrix they make up for
        fits = self._refit_(pruned, chosen, refitted)
        if sequential and refitted:
            fits |= self._refit_again_(pruned, chosen)
        attach_(pruned, self.plan, gate=Fixed())
        for name, gate in attached(pruned).gates.items():
            gate.log_alpha = chosen[name].to(gate.log_alpha) * 2 - 1
            gate.log_alpha.requires_grad_(False)
        small = compact(pruned)
        difference = verify(pruned, small, self.calls[0])
        set_report_(small, self._report(small, chosen, fits, difference))
        return small

    def chosen(
        self,
        errors: criteria.Errors,
        *,
        params: float | None,
        macs: float | None,
        keep: Mapping[str, int],
    ) -> Masks:
        """Return which neurons stay: the dearest for what they cost, within the size."""
        fixed = {name: self._best(errors, name, n) for name, n in keep.items()}
        if params is None and macs is None:
            if not keep:
                raise TargetError("give params=, macs= or keep=: how small the model should be.")
            everybody = {n: torch.ones(size).bool() for n, size in self.sizes.groups.items()}
            return everybody | fixed
        _, goal = read_limits(self.sizes, params=params, macs=macs)
        worth = {name: e.clamp(min=1e-30).log() for name, e in errors.items()}
        if errors is not self._scores.get("magnitude"):
            worth = {name: w - self._cost(goal)[name].log() for name, w in worth.items()}
        for name, mask in fixed.items():
            worth[name] = torch.where(mask, 1e9, -1e9)
        found = select_neurons(self.sizes, worth, goal) | fixed
        present = {name: mask.double() for name, mask in found.items()}
        if any(self.sizes.total(present, what) > most for what, most in goal.items()):
            raise TargetError("the numbers in keep= leave more than params= or macs= allow.")
        return found

    def _best(self, errors: criteria.Errors, name: str, wanted: int) -> Tensor:
        size = self.plan[name].size
        if not 1 <= wanted <= size:
            raise TargetError(f"keep={{'{name}': {wanted}}}: the group has 1 to {size} neurons.")
        mask = torch.zeros(size, dtype=torch.bool)
        mask[torch.topk(errors[name], wanted).indices] = True
        return mask

    def _cost(self, goal: Limits) -> dict[str, Tensor]:
        """Return which part of the limits one neuron of each group takes."""
        parts = [self.sizes.neuron_costs(what, most) for what, most in goal.items()]
        return {name: torch.stack([p[name] for p in parts]).sum(0) for name in self.sizes.groups}

    @torch.no_grad()
    def _refit_(self, pruned: nn.Module, chosen: Masks, refitted: bool) -> dict[str, Fit]:
        """Refit every matrix that loses columns, in place, and set to zero what goes."""
        fits: dict[str, Fit] = {}
        tensors = named_tensors(pruned)
        for matrix in self.matrices.values():
            stays = self._columns_left(matrix, chosen)
            if len(stays) == tensors[matrix.name].flatten(1).shape[1]:
                continue
            same = Signals.same(self.moments[matrix.name])
            check = Signals.same(self.checks[matrix.name])
            fits[matrix.name] = self._fit_(pruned, matrix, stays, same, check, free=refitted)
        for group in self.plan:
            gone = (~chosen[group.name]).nonzero().flatten()
            for s in group.slices:
                if s.role == "read":
                    positions, neurons = s.index()
                    closed = positions[torch.isin(neurons, gone)]
                    tensor = tensors[s.parameter]
                    tensor.index_fill_(s.dim, closed.to(tensor.device), 0.0)
        return fits

    @torch.no_grad()
    def _refit_again_(self, pruned: nn.Module, chosen: Masks) -> dict[str, Fit]:
        """Refit on what the pruned model reads, the matrices of one output after another.

        Matrices that add up to one output are refitted as one, so that each makes up for what the
        other has lost.
        """
        fits: dict[str, Fit] = {}
        original, tensors = named_tensors(self.model), named_tensors(pruned)
        for output in dict.fromkeys(m.output for m in self.matrices.values()):
            here = {n: m for n, m in self.matrices.items() if m.output == output and m.is_free}
            if not here:
                continue
            signals = [
                signals_of(self.model, pruned, here, calls)
                for calls in (self.fitted, self.held or self.fitted)
            ]
            weights = [original[name].flatten(1) for name in here]
            widths = [weight.shape[1] for weight in weights]
            starts = itertools.accumulate(widths, initial=0)
            stays = [
                start + self._columns_left(matrix, chosen)
                for start, matrix in zip(starts, here.values(), strict=False)
            ]
            has_bias = any(matrix.bias for matrix in here.values())
            fit = refit(
                torch.cat(weights, 1),
                torch.cat(stays).to(weights[0].device),
                *signals,
                has_bias=has_bias,
            )
            for part, (name, matrix) in zip(fit.weight.split(widths, 1), here.items(), strict=True):
                left = self._columns_left(matrix, chosen)
                self._write_(tensors, matrix, part, left)
                fits[name] = fit
            if has_bias:
                with_bias = [matrix for matrix in here.values() if matrix.bias]
                for place, matrix in enumerate(with_bias):
                    self._shift_(tensors, matrix, fit.shift if place == 0 else None)
        return fits

    @torch.no_grad()
    def _fit_(
        self,
        pruned: nn.Module,
        matrix: Matrix,
        stays: Tensor,
        fit: Signals,
        check: Signals,
        *,
        free: bool,
    ) -> Fit:
        """Write the best columns and bias of one matrix into the pruned model."""
        original, tensors = named_tensors(self.model), named_tensors(pruned)
        weight = original[matrix.name]
        found = refit(
            weight.flatten(1),
            stays.to(weight.device),
            fit,
            check,
            has_bias=bool(matrix.bias),
            free=free and matrix.is_free,
        )
        if free and matrix.is_free:
            self._write_(tensors, matrix, found.weight, stays)
        if found.shift is not None:
            self._shift_(tensors, matrix, found.shift)
        return found

    def _write_(
        self, tensors: dict[str, Tensor], matrix: Matrix, weight: Tensor, stays: Tensor
    ) -> None:
        """Write new columns (O, P) into a model; those that go are zero."""
        tensor = tensors[matrix.name]
        new = torch.zeros_like(tensor).flatten(1)
        new[:, stays] = weight[:, stays].to(new)
        tensor.copy_(new.view_as(tensor))

    def _shift_(self, tensors: dict[str, Tensor], matrix: Matrix, shift: Tensor | None) -> None:
        """Move a matrix's bias by what makes up for the means; None takes it back."""
        self._shifts.pop(matrix.name, None)
        if shift is not None:
            self._shifts[matrix.name] = shift
        others = (m.name for m in self.matrices.values() if m.bias == matrix.bias)
        bias = named_tensors(self.model)[matrix.bias].double()
        total = sum((self._shifts[n] for n in others if n in self._shifts), bias)
        tensors[matrix.bias].copy_(total)

    def _columns_left(self, matrix: Matrix, chosen: Masks) -> Tensor:
        weight = named_tensors(self.model)[matrix.name]
        return columns_left(matrix, weight.flatten(1).shape[1], chosen)

    def _report(
        self, small: nn.Module, chosen: Masks, fits: dict[str, Fit], difference: float
    ) -> PruningReport:
        readers = {
            g.name: tuple(
                ReaderFit(name, fits[name].dropped, fits[name].refitted)
                for name, matrix in self.matrices.items()
                if g.name in matrix.columns and name in fits
            )
            for g in self.plan
        }
        return PruningReport(
            sizes={name: (len(mask), int(mask.sum())) for name, mask in chosen.items()},
            readers=readers,
            agreement=self.agreement(small),
            difference=difference,
            samples=min(m.count for m in self.moments.values()),
            held_out=len(self.held),
        )

    def agreement(self, small: nn.Module) -> Agreement:
        """Return how near another model's outputs are to the original's on the held-out calls."""
        return agreement(self.model, small, self.held or self.fitted)


def agreement(model: nn.Module, small: nn.Module, calls: Iterable[Any]) -> Agreement:
    """Return how near the outputs of two models are, of those that have one shape in both."""
    found = Agreements()
    small = copy_module(small).eval()
    for call in calls:
        arguments = call_arguments(call)
        outputs = (list(tensors_in(run(one, arguments))) for one in (model, small))
        for expected, given in zip(*outputs, strict=False):
            if expected.shape == given.shape and expected.is_floating_point():
                found.add(expected, given)
    return found.result()
