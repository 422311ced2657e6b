"""Target: a size instead of a penalty weight.

size
full ──────╮
           ╰╮        the best neurons that fit the line stay open, the others are closed
             ╰─╮
target         ╰──────────────────────
      0      steps                    training step
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn._gates.attach import attached
from thinrnn._penalties.choose import Limits, Masks, budget, choose
from thinrnn.errors import TargetError

WARM_UP = 0.1  # part of the steps in which nothing closes: gates learn what they are worth
THRIFT = 0.5  # how much a neuron's cost counts against its standing in its group
LOOKS = 200  # times, spread over the steps, at which it is decided anew who stays
LEANINGS = 8  # with two limits: ways to weigh the two costs of a neuron that are tried
ENOUGH = 0.99  # of both limits


class Target:
    """A limit on the small model's `params`, `macs` or both: a fraction (<= 1) or a number.

    Call it once per training step and add the result to the loss. Over `steps` calls the limit is
    lowered geometrically from the full size; at each point the neurons stay open that stand
    highest in their group, by their gates, for what they cost, and the others are closed. After
    that the choice is final: gates no longer learn and are no longer random, and `shrink_` folds
    them into the weights, so that the rest of the training costs what a small plain model costs.
    In eval, and for `compact`, the model always obeys the final limit: its size ends at most 2 %
    below it and never above, as far as whole neurons allow. No group loses all its neurons.

        limit = Target(model, params=0.10, steps=2000)
        loss = criterion(model(x), y) + limit()
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        params: float | None = None,
        macs: float | None = None,
        steps: int = 1000,
    ) -> None:
        if steps < 1:
            raise TargetError(f"steps={steps}: the limit is lowered over 1 step or more.")
        self.gated = attached(model)
        self.full, self.goal = budget(self.gated.sizes, params=params, macs=macs)
        self.steps = steps
        self.step = 0
        self.worth = {
            name: torch.zeros(gate.full_size, dtype=torch.float64)
            for name, gate in self.gated.gates.items()
        }
        self._is_ignored = False
        self._allowed: tuple[tuple[int, ...], Masks] | None = None
        self.gated.unfreeze_()
        for gate in self.gated.gates.values():
            gate.restrict = self._allow

    @property
    def limit(self) -> Limits:
        """The size that is allowed at this step of the training."""
        part = self.progress_at(self.step)
        return {
            what: full * math.pow(self.goal[what] / full, part) for what, full in self.full.items()
        }

    def progress_at(self, step: int) -> float:
        """Return how far the limit has come down at a step, from 0 to 1, in equal factors."""
        part = (step / self.steps - WARM_UP) / (1 - WARM_UP)
        return min(max(part, 0.0), 1.0)

    @property
    def is_settled(self) -> bool:
        """Whether the limit has come down to the target."""
        return self.step >= self.steps

    def __call__(self) -> Tensor:
        """Return what to add to the loss, and close the gates that no longer fit."""
        self.step += 1
        every = max(1, self.steps // LOOKS)
        is_due = self.step % every == 0 and self.progress_at(self.step) > 0
        if self.step == self.steps:
            self.settle_()
            self.gated.is_frozen = True
        elif is_due and not self.is_settled:
            self.settle_(self.limit)
        return torch.zeros((), device=next(iter(self.gated.gates.values())).log_alpha.device)

    @torch.no_grad()
    def settle_(self, limit: Limits | None = None) -> None:
        """Close the gates that do not fit the limit (the final one by default), open the others."""
        self.worth = self._worth()
        chosen = self.chosen(self.goal if limit is None else limit)
        for name, gate in self.gated.gates.items():
            mask = chosen[name].to(gate.log_alpha.device)[gate.origin]
            worth = self.worth[name].to(gate.log_alpha)[gate.origin]
            # a gate that opens again stands where it stood, or the next look would close it
            said = torch.where(mask & (gate.own_value <= 0), worth, gate.log_alpha)
            gate.log_alpha.copy_(gate.estimator.placed(mask, said))

    @torch.no_grad()
    def chosen(self, limit: Limits, *, open_first: bool = False) -> Masks:
        """Return the original neurons that are worth most within a limit.

        With `open_first`, neurons whose gates are closed come after all others. With two limits,
        what a neuron takes of each is weighed so that both are used up, as far as they can be.
        """
        sizes = self.gated.sizes
        first, *others = limit
        low, high, most_used = 0.0, 1.0, -1.0
        for _ in range(LEANINGS if others else 1):
            lean = (low + high) / 2
            weight = {first: lean, **dict.fromkeys(others, 1 - lean)}
            found = self._chosen(limit, weight, open_first)
            present = {name: mask.double() for name, mask in found.items()}
            used = {w: float(sizes.total(present, w)) / most for w, most in limit.items()}
            if min(used.values()) > most_used:
                most_used, chosen = min(used.values()), found
            if most_used > ENOUGH:
                break
            # the limit that is reached decides what is closed: its cost has to count for more
            low, high = (lean, high) if used[first] == max(used.values()) else (low, lean)
        return chosen

    def _chosen(self, limit: Limits, weight: Limits, open_first: bool) -> Masks:
        """Return the neurons that are worth most for what they cost, costs weighed by limit."""
        costs = self._costs(limit, weight)
        usual = torch.cat(list(costs.values())).log().mean()
        scores = {}
        for name, worth in self._worth().items():
            standing = (worth - worth.mean()) / worth.std().clamp(min=1e-9)
            handicap = THRIFT * (costs[name].log() - usual)
            gate = self.gated.gates[name]
            scores[name] = (standing - handicap).nan_to_num(0.0)
            if open_first:
                closed = gate.origin[gate.own_value <= 0].cpu()
                scores[name][closed] -= 1e6
            gone = torch.ones(len(worth), dtype=torch.bool)
            gone[gate.origin.cpu()] = False
            scores[name].masked_fill_(gone, -1e9)
        return choose(self.gated.sizes, scores, limit)

    def _costs(self, limit: Limits, weight: Limits) -> dict[str, Tensor]:
        """Return which part of what is allowed a neuron of each group takes."""
        sizes = self.gated.sizes
        parts = [
            (sizes.neuron_costs(what, most), weight[what] / most) for what, most in limit.items()
        ]
        return {
            name: torch.stack([costs[name].clamp(min=1) * part for costs, part in parts]).sum(0)
            for name in sizes.groups
        }

    def _worth(self) -> dict[str, Tensor]:
        """Return what the gate of each original neuron said when it was last open."""
        worth = {}
        for name, gate in self.gated.gates.items():
            gate.check()
            is_open = (gate.own_value > 0).cpu()
            said = gate.log_alpha.detach().double().cpu().clamp(-1e6, 1e6)
            worth[name] = self.worth[name].clone()
            worth[name][gate.origin.cpu()[is_open]] = said[is_open]
        return worth

    @contextmanager
    def at_present(self) -> Iterator[None]:
        """Inside `with`, eval uses all gates that are open now, whether they fit the end or not.

        This is the model to validate while the limit is still coming down.
        """
        self._is_ignored = True
        try:
            yield
        finally:
            self._is_ignored = False

    def _allow(self, name: str) -> Tensor | None:
        """Return, for a group's gates in eval, which ones fit the final limit."""
        if self._is_ignored:
            return None
        gates = self.gated.gates
        now = tuple(g.log_alpha._version + 1_000_003 * g.size for g in gates.values())
        if self._allowed is None or self._allowed[0] != now:
            self._allowed = (now, self.chosen(self.goal, open_first=True))
        gate = gates[name]
        return self._allowed[1][name].to(gate.log_alpha.device)[gate.origin]

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {"step": self.step, "worth": dict(self.worth)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.step = int(state["step"])
        self.worth = {name: row.double().cpu() for name, row in state["worth"].items()}
        self.gated.is_frozen = self.is_settled
        self._allowed = None
