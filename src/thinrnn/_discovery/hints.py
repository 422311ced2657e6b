"""What may be behind a trial cut that failed, for the reason that the user reads."""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from thinrnn._discovery.coupling import Coupling
from thinrnn._discovery.inputs import argument_names, features_of
from thinrnn._discovery.probe import Probe
from thinrnn._discovery.recording import Port
from thinrnn._model.tree import tensors_in
from thinrnn.plan import Group, Refusal


class Hints:
    """Knows what the neurons of a group meet besides the layers that read them."""

    def __init__(
        self,
        probe: Probe,
        coupling: Coupling,
        by_argument: dict[int, dict[Port, Tensor]],
        is_users: Callable[[str], bool],
    ) -> None:
        self.probe, self.coupling = probe, coupling
        self.by_argument, self.is_users = by_argument, is_users

    def explained(self, refusal: Refusal) -> Refusal:
        """Return the refusal with a hint: an input that stays, or raw tensors that may read."""
        group = refusal.group
        argument = self._argument_beside(group)
        if argument:
            reason = f"it goes together with '{argument}', an input of the model; {refusal.reason}"
            return replace(refusal, reason=reason)
        raws = self._raws(group)
        if not raws:
            return refusal
        more = f"; or does {raws[0]} read it? Then plan.using('{group.name}', '{raws[0]}', dim=...)"
        return replace(refusal, reason=refusal.reason + more, undeclared=tuple(raws))

    def _raws(self, group: Group) -> list[str]:
        """Return raw tensors that the neurons meet and that have a place for each of them."""
        makers, own = group.owners("produce"), {s.parameter for s in group.slices}
        whole = self.coupling.whole.items()
        met = dict.fromkeys(n for (name, _), seen in whole if name in makers for n in seen.touched)
        return [
            name
            for name in met
            if name not in own
            and self.is_users(name)
            and group.size in self.probe.tensors[name].shape
        ]

    def _argument_beside(self, group: Group) -> str:
        """Return the argument whose entries meet the neurons one by one, as in `x + rnn(x)`."""
        makers = group.owners("produce")
        names = argument_names(self.probe.model, self.probe.arguments)
        for index, leaf in enumerate(tensors_in(self.probe.arguments)):
            beside = {}
            for port, moved in self.by_argument.get(index, {}).items():
                reads = self.coupling.reads[port].items()
                own = [rows.any(1) for (name, _), rows in reads if name in makers]
                both = [moved & rows for rows in own if (moved & rows).any()]
                if both:
                    beside[port] = both[0]
            for axis in range(leaf.dim()) if beside else ():
                entries = features_of(self.probe, index, leaf, axis, beside)
                if entries is not None and all(_is_one_to_one(rows) for rows in entries.values()):
                    return names[index]
        return ""


def _is_one_to_one(rows: Tensor) -> bool:
    return rows.shape[1] > 1 and bool((rows.sum(0) <= 1).all())
