"""Target: a size instead of a penalty weight.

size
full ──────╮
           ╰╮        the best neurons that fit the limit stay open, the others are closed
             ╰─╮
target         ╰──────────────────────
      0      steps                    training step
"""

import itertools
import math
import warnings
from collections.abc import Mapping
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor, nn

from thinrnn._gates.attach import attached
from thinrnn._gates.attached import Attached
from thinrnn._gates.sizes import What
from thinrnn._penalties.group_lasso import norms
from thinrnn._penalties.limits import Limits, Size, absolute, listed, read_limits, read_milliseconds
from thinrnn._penalties.selection import Masks, equal_sets, select_by_worth
from thinrnn.errors import TargetError

WARM_UP = 0.1  # part of the steps in which nothing closes: gates learn what they are worth
LOOKS = 200  # how often, over the steps, the neurons are selected anew
START_SPREAD = 1.0  # standard deviation of `log_alpha` where scores give its start
LEARNED = 0.5  # gates that moved less, relative to their random start, have learned nothing

Score = Literal["gates", "random", "magnitude"]  # what ranks the neurons of a group


class Times(Protocol):
    """What `Target` needs to count in milliseconds; see `Latency`."""

    def fit(self, gated: Attached, goal: float) -> tuple[Tensor, float]:
        """Return milliseconds per element of each parameter, and per call, right near a goal."""
        ...


class Target:
    """A limit on the small model: parameters, mult-adds per step, milliseconds, or two of them.

    Call `target.step()` once per training step, after `optimizer.step()`. For the first tenth of
    the `steps` nothing closes, so that the gates can learn which neurons matter. Then the limit
    comes down geometrically from the full size. At each point the neurons stay open whose gates
    rank highest in their group for what they cost, and the others are closed; no group loses all
    its neurons. After `steps` calls the selection is final: gates are no longer random and no
    longer learn, and `shrink_` folds them into the weights, so that the rest of the training costs
    what a small plain model costs. The final size is at most 2 % below the limit and never above
    it, as far as whole neurons allow.

    Creating a target changes nothing, and eval always shows the gates as they are. If you stop
    before `steps` calls, give the target to `compact`, which then applies the final limit.

    Give several sizes in falling order, as in `params=[0.5, 0.25, 0.1]`, to get a model of each
    from one training. For each size the limit comes down over `steps` calls, then the selection
    stands still for `finish` calls, in which you take the learning rate down: multiply it by
    `rate`. After the last of them `reached` is that size, and `compact(model)` the model to keep.
    Then the gates learn again, and the limit comes down to the next size.

    Gates need time to learn: with Adam, `gate_lr * steps` should be 10 or more. A target warns when
    it is about to close gates that have hardly moved from their random start.

    Args:
        model: A model with gates, from `attach_`.
        params: Parameters to end with: a fraction of the full size (up to 1), or a number; or
            several of these in falling order.
        macs: Mult-adds per step to end with, given the same way; each matrix counts as often as
            the example of `find_groups` applies it. Only one of the two may be several.
        latency: The time of a call to end with, as in "2 ms" or "350 us". It needs `on`.
        on: Where that time is measured, a `Latency`.
        steps: Calls of `step()` after which the limit is reached; with several sizes, of each.
        finish: Calls of `step()` that each size gets on top, with the selection as it is.
        equal: Keep as many neurons in all layers and directions of a recurrent module, so that
            `compact` returns a plain `nn.LSTM`, `nn.GRU` or `nn.RNN` instead of an `RNNStack`.
        score: What ranks the neurons of a group: "gates", the learned ones; or, as controls with
            the same schedule and the same random gates, "random", an order drawn once, and
            "magnitude", the norm of a neuron's weights. In both controls the gates stop learning at
            the first call of `step()`.
        start: What each neuron is worth at the beginning, by group, as `neuron_scores` returns it.
            The first call of `step()` then ranks the gates by it, and they learn from there.
            Without it they start alike and know nothing. It is for trained models.

    Attributes:
        steps: Calls of `step()` after which the limit is reached; with several sizes, of each.
        finish: Calls of `step()` that each size gets on top.
        calls: Calls of `step()` for all sizes together.
        steps_done: Calls of `step()` so far.
        progress: How far the limit has come down, from 0 to 1.
        rate: What to multiply the learning rate by: 1, and from 1 to 0 in each finish.
        limit: The size that is allowed now, as in `{"params": ..., "macs": ...}`; a latency is in
            milliseconds.
        reached: The size, as given, that the last call of `step()` finished, or None.
        is_settled: Whether the selection is final.

    Raises:
        GateError: The model has no gates.
        TargetError: No limit is given, no choice of neurons meets it, the score is unknown, `start`
            does not fit the groups, or several sizes do not fall.

    Example:
        >>> model, x = nn.LSTM(16, 32, num_layers=2), torch.randn(10, 4, 16)
        >>> _ = thinrnn.attach_(model, thinrnn.find_groups(model, x))
        >>> target = thinrnn.Target(model, params=0.5, steps=20)
        >>> optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-2, gate_lr=0.5))
        >>> for _ in range(30):
        ...     loss = model(x)[0].square().mean()
        ...     loss.backward()
        ...     optimizer.step()
        ...     optimizer.zero_grad()
        ...     target.step()
        >>> target.is_settled
        True
        >>> thinrnn.count(thinrnn.compact(model)).params <= target.limit["params"]
        True
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        params: Size | None = None,
        macs: Size | None = None,
        latency: str | None = None,
        on: Times | None = None,
        steps: int = 1000,
        finish: int = 0,
        equal: bool = False,
        score: Score = "gates",
        start: Mapping[str, Tensor] | None = None,
    ) -> None:
        if steps < 1:
            raise TargetError(f"steps={steps}: the limit is lowered over 1 step or more.")
        if finish < 0:
            raise TargetError(f"finish={finish}: a size gets 0 steps or more to finish.")
        if score not in get_args(Score):
            raise TargetError(f"score={score!r}: write one of {', '.join(get_args(Score))}.")
        self.gated = attached(model)
        self.start = self._checked(start, score)
        self.sizes = self.gated.sizes
        if (latency is None) != (on is None):
            raise TargetError(
                "latency= and on= go together: latency='2 ms', on=thinrnn.Latency(example)."
            )
        milliseconds = None
        if latency is not None and on is not None:
            milliseconds = read_milliseconds(latency)
            self.sizes = self.sizes.with_latency(*on.fit(self.gated, milliseconds))
        given: dict[What, list[float]] = {"params": listed(params), "macs": listed(macs)}
        last = {what: sizes[-1] for what, sizes in given.items() if sizes}
        self.full, self.goal = read_limits(self.sizes, latency=milliseconds, **last)
        self.steps, self.finish = steps, finish
        self._equal = equal_sets(self.gated.first_plan) if equal else []
        self._sizes = self._read_sizes(given)
        self.score = score
        self.steps_done = 0
        self._has_closed = False
        make = torch.rand if score == "random" else torch.zeros
        self._worth = {  # of each original neuron, when its gate was last open
            name: make(gate.full_size, dtype=torch.float64)
            for name, gate in self.gated.gates.items()
        }

    @property
    def calls(self) -> int:
        """Calls of `step()` for all sizes together."""
        return len(self._sizes) * (self.steps + self.finish)

    @property
    def is_settled(self) -> bool:
        """Whether the selection is final."""
        return self.steps_done >= self.calls - self.finish

    @property
    def reached(self) -> float | None:
        """The size, as given, that the last call of `step()` finished, or None."""
        place, rest = divmod(self.steps_done, self.steps + self.finish)
        return None if rest or not 0 < place <= len(self._sizes) else self._sizes[place - 1][0]

    @property
    def rate(self) -> float:
        """What to multiply the learning rate of the next training step by.

        It is 1 while the limit comes down, and falls to 0 in each finish. After one it rises again,
        in the time in which the gates learn and nothing closes.
        """
        place, done = self._place(self.steps_done + 1)
        if not self.finish:
            return 1.0
        if done > self.steps:
            return max(0.0, 1 - (done - self.steps - 1) / self.finish)
        return min(1.0, done / (WARM_UP * self.steps)) if place else 1.0

    @property
    def progress(self) -> float:
        """How far the limit has come down, from 0 to 1, in equal factors for each size."""
        return self.progress_at(self.steps_done)

    def progress_at(self, step: int) -> float:
        """Return how far the limit has come down after this many steps, from 0 to 1."""
        place, done = self._place(step)
        return (place + self._part(done)) / len(self._sizes)

    @property
    def limit(self) -> Limits:
        """The size that is allowed now."""
        place, done = self._place(self.steps_done)
        goal = self._sizes[place][1]
        if done >= self.steps:
            return dict(goal)
        before = self._sizes[place - 1][1] if place else self.full
        part = self._part(done)
        return {what: full * math.pow(goal[what] / full, part) for what, full in before.items()}

    def step(self) -> None:
        """Count a training step, and close the gates that no longer fit the limit."""
        self.steps_done += 1
        place, done = self._place(self.steps_done)
        if done == 1:
            self.gated.unfreeze_()
            if place == 0:
                self._rank_by_start()
            self._stop_learning()
        is_last = done == self.steps
        is_look = done % max(1, self.steps // LOOKS) == 0 and 0 < self._part(done) < 1
        if not (is_last or is_look):
            return
        if not self._has_closed:
            if self.score == "gates" and not self.start:
                self._warn_if_random()
            self._has_closed = True
        self._close(self.limit)
        if is_last:
            self.gated.freeze_()

    @torch.no_grad()
    def final_log_alpha(self) -> dict[str, Tensor]:
        """Return `log_alpha` of each group as the final limit would leave it.

        Neurons whose gates are open now come first. The model stays as it is.
        """
        if self.is_settled:
            return {name: gate.wide_log_alpha for name, gate in self.gated.gates.items()}
        masks = self._select(self.goal, open_first=True)
        return {
            name: gate.estimator.placed(masks[name].to(gate.log_alpha.device), gate.wide_log_alpha)
            for name, gate in self.gated.gates.items()
        }

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        state: dict[str, Any] = {"step": self.steps_done, "worth": dict(self._worth)}
        if "latency" in self.goal:  # measured anew, the same model takes a little more or less
            state["latency"] = {
                "weights": self.sizes.weights["latency"],
                "base": self.sizes.base["latency"],
                "full": self.full["latency"],
            }
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint, after the model has loaded its own."""
        self.steps_done = int(state["step"])
        self._worth = {name: row.double().cpu() for name, row in state["worth"].items()}
        if "latency" in state:
            times = state["latency"]
            self.sizes = self.sizes.with_latency(times["weights"], float(times["base"]))
            self.full["latency"] = float(times["full"])
        if self.steps_done:
            self._stop_learning()
        if self._place(self.steps_done)[1] >= self.steps:
            self.gated.freeze_()

    def _checked(self, start: Mapping[str, Tensor] | None, score: Score) -> dict[str, Tensor]:
        """Return the scores to start from, which must be numbers for groups with gates."""
        if start is not None and score != "gates":
            raise TargetError(f"start= is for gates that learn, not for score='{score}'.")
        known = {name: gate.full_size for name, gate in self.gated.gates.items()}
        for name, scores in (start or {}).items():
            if len(scores) != known.get(name) or not bool(scores.isfinite().all()):
                size = f"of {known[name]} neurons" if name in known else "without gates"
                raise TargetError(
                    f"start has {len(scores)} scores for '{name}', a group {size}: give what "
                    "neuron_scores(model, data, plan=plan) returns, with the plan of the gates."
                )
        return {name: scores.detach().double().cpu() for name, scores in (start or {}).items()}

    @torch.no_grad()
    def _rank_by_start(self) -> None:
        """Set the gates so that they are ranked by the scores to start from."""
        for name, scores in self.start.items():
            gate = self.gated.gates[name]
            place = (scores.argsort(stable=True).argsort().double() + 0.5) / len(scores)
            spread = START_SPREAD * torch.special.ndtri(place)  # as if drawn from a normal
            gate.start = (gate.start.double().mean() + spread).to(gate.start)
            gate.log_alpha = gate.start[gate.origin.cpu()]

    def _read_sizes(self, given: dict[What, list[float]]) -> list[tuple[float, Limits]]:
        """Return each size as given, with its limits."""
        what: What = max(given, key=lambda name: len(given[name]))
        sizes = given[what]
        if len(sizes) < 2:
            return [(sizes[0] if sizes else self.goal["latency"], self.goal)]
        if len(self.goal) > 1:
            raise TargetError("give several sizes of params or of macs, without another limit.")
        full = self.full[what]
        limits = [absolute(size, full) for size in sizes]
        if not all(low < high for high, low in itertools.pairwise([full, *limits])):
            raise TargetError(f"{what}={sizes}: give the sizes in falling order.")
        return [(size, {what: limit}) for size, limit in zip(sizes, limits, strict=True)]

    def _place(self, step: int) -> tuple[int, int]:
        """Return which size a call of `step()` belongs to, and how many it has had with it."""
        each = self.steps + self.finish
        place = min(max(step - 1, 0) // each, len(self._sizes) - 1)
        return place, step - place * each

    def _part(self, done: int) -> float:
        """Return how far the limit has come down for a size after so many calls, from 0 to 1."""
        return min(max((done / self.steps - WARM_UP) / (1 - WARM_UP), 0.0), 1.0)

    def _stop_learning(self) -> None:
        """Let gates that rank nothing learn nothing; they stay random until the size is reached."""
        if self.score != "gates":
            for gate in self.gated.gates.values():
                gate.log_alpha.requires_grad_(False)

    @torch.no_grad()
    def _close(self, limit: Limits) -> None:
        """Close the gates that do not fit the limit, open the others."""
        self._worth = self._present_worth()
        masks = self._select(limit)
        for name, gate in self.gated.gates.items():
            mask = masks[name].to(gate.log_alpha.device)
            # a gate that opens again gets its old rank back, or the next look would close it
            earlier = self._worth[name] if self.score == "gates" else gate.start
            back = earlier.to(gate.log_alpha)[gate.origin]
            wanted = torch.where(mask & (gate.value <= 0), back, gate.log_alpha)
            gate.log_alpha.copy_(gate.estimator.placed(mask, wanted))

    def _warn_if_random(self) -> None:
        """Warn if the differences between gates are still those of their random start."""
        spread = moved = 0.0
        for gate in self.gated.gates.values():
            start = gate.start[gate.origin.cpu()].double()
            spread += float(start.var(correction=0)) * gate.size
            change = gate.log_alpha.detach().double().cpu() - start
            moved += float(change.var(correction=0)) * gate.size
        if moved <= LEARNED**2 * spread:
            warnings.warn(
                f"Target closes its first gates at step {self.steps_done} of {self.steps}, but the "
                "gates have hardly moved from their random start: which neurons stay is mostly "
                "chance. Raise gate_lr or steps until gate_lr * steps is 10 or more (with Adam), "
                "and check that the optimizer has the gates: param_groups(model, ...).",
                stacklevel=3,  # the caller of step()
            )

    def _present_worth(self) -> dict[str, Tensor]:
        """Return what each original neuron is worth; of a closed one, when it was last open."""
        if self.score == "random":
            return self._worth
        if self.score == "magnitude":
            return self._magnitudes()
        worth = {}
        for name, gate in self.gated.gates.items():
            gate.check()
            is_open = (gate.value > 0).cpu()
            now = gate.log_alpha.detach().double().cpu().clamp(-1e6, 1e6)
            worth[name] = self._worth[name].clone()
            worth[name][gate.origin.cpu()[is_open]] = now[is_open]
        return worth

    def _magnitudes(self) -> dict[str, Tensor]:
        worth = {name: row.clone() for name, row in self._worth.items()}
        for group in self.gated.plan.groups:
            now = norms(self.gated.model, group).double().cpu()
            worth[group.name][self.gated.gates[group.name].origin.cpu()] = now
        return worth

    def _select(self, limit: Limits, *, open_first: bool = False) -> Masks:
        """Return which present neurons are worth most within a limit."""
        gates = self.gated.gates
        present = {name: gate.origin.cpu() for name, gate in gates.items()}
        closed = {name: present[name][(gate.value <= 0).cpu()] for name, gate in gates.items()}
        chosen = select_by_worth(
            self.sizes,
            self._present_worth(),
            limit,
            present=present,
            last=closed if open_first else {},
            equal=self._equal,
        )
        return {name: mask[present[name]] for name, mask in chosen.items()}
