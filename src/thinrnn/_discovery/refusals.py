"""Why a neuron has to stay: what else, besides the layers that read it, depends on it."""

from dataclasses import replace

from torch import Tensor, nn

from thinrnn._discovery.coupling import Coupling
from thinrnn._discovery.inputs import Moved, features_of
from thinrnn._discovery.probe import Probe, Source
from thinrnn._discovery.raw_tensors import RawTensor
from thinrnn._discovery.recording import Seen
from thinrnn._discovery.states import FoundStates
from thinrnn._layers.norms import NormLayer
from thinrnn._layers.registry import layer_of
from thinrnn._model.tree import argument_names, tensors_in
from thinrnn.group import Group
from thinrnn.plan import Refusal

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


class Reasons:
    """Finds out why neurons are refused; `moved` tells what each argument of the model moves."""

    def __init__(self, probe: Probe, moved: Moved, states: FoundStates) -> None:
        self.probe, self.moved, self.states = probe, moved, states

    def reason(self, source: Source, coupling: Coupling, label: str) -> str:
        """Return why the neurons of a source have to stay, or an empty text."""
        whole, visible = coupling.whole[source], coupling.shown[source]
        mixed_at = [port for port, mixed in coupling.mixed.items() if source in mixed]
        if whole.diverged:
            return whole.diverged
        if whole.chosen:
            return f"it decides which rows '{next(iter(whole.chosen))}' looks up"
        if isinstance(self.probe.layers.get(source[0]), RawTensor) and source in coupling.explained:
            return ""
        norms = self.probe.functional_norms
        normed = [name for name in whole.touched if name in norms and self.is_users(name)]
        if normed and (visible or mixed_at):
            return (
                f"mixed with others by torch.nn.functional.{norms[normed[0]]} with '{normed[0]}': "
                "write it as a module of torch.nn, and give through_norms=True"
            )
        raws, mixers = coupling.raws.get(source, []), self._mixers(whole)
        if source in coupling.explained or (raws and not mixers and (visible or mixed_at)):
            first = f"plan.using('{label}', '{raws[0]}', dim=...)"
            return f"also read by raw parameters: {', '.join(raws)}; declare them with {first}"
        if visible:
            return "returned to the caller"
        if mixed_at:
            where = f"before '{mixed_at[0][0]}' reads it"
            return f"mixed with others {mixers}{where}{self._way([whole])}"
        return ""

    def _way(self, seen: list[Seen]) -> str:
        """Return the next step where norms mix the neurons."""
        probe = self.probe
        if probe.through_norms and "" in probe.functional_norms:
            return f"; is it torch.nn.functional.{probe.functional_norms['']}? Write it as a module"
        met = {name.rpartition(".")[0] for one in seen for name in one.touched}
        for name, module in probe.model.named_modules():
            layer = layer_of(name, module, probe.model)
            is_norm = isinstance(layer, NormLayer) and name not in probe.known
            if is_norm and (name in met or module.weight is None):
                return "; find_groups(..., through_norms=True) prunes through norms, approximately"
        return ""

    def shown(self, source: Source, seen: Seen) -> set[int]:
        """Return which of the returned tensors show a source, states not counted."""
        own = self.states.own
        return {i for i in seen.returned - self.states.indices if source[0] not in own.get(i, ())}

    def is_users(self, tensor: str) -> bool:
        """Whether a raw tensor is used by the user's own code, not by a module of torch."""
        return self._foreign_home(tensor) is None

    def _mixers(self, seen: Seen) -> str:
        """Name the first module of torch that the neurons meet and that may mix them."""
        for name in seen.touched:
            home = self._foreign_home(name)
            if home is not None and self.probe.tensors[name].numel() > 1:
                return f"by '{home}' ({type(self.probe.model.get_submodule(home)).__name__}) "
        return ""

    def _foreign_home(self, tensor: str) -> str | None:
        """Return the module of torch, other than a known layer, that a tensor is inside of."""
        path = tensor.split(".")[:-1]
        for end in range(1, len(path) + 1):
            name = ".".join(path[:end])
            module = self.probe.model.get_submodule(name)
            is_torchs = type(module).__module__.startswith("torch.nn.")
            known = any(layer.module is module for layer in self.probe.known.values())
            if is_torchs and not isinstance(module, CONTAINERS) and not known:
                return name
        return None

    def explained(self, refusal: Refusal, coupling: Coupling) -> Refusal:
        """Return the refusal with a hint: an input that stays, or raw tensors that may read."""
        group = refusal.group
        argument = self._argument_beside(group, coupling)
        if argument:
            reason = f"it goes together with '{argument}', an input of the model; {refusal.reason}"
            return replace(refusal, reason=reason, undeclared=())
        makers = group.owners("produce")
        seen = [seen for (name, _), seen in coupling.whole.items() if name in makers]
        if not refusal.undeclared:
            return replace(refusal, reason=refusal.reason + self._way(seen))
        raw = refusal.undeclared[0]
        more = f"; or does {raw} read it? Then plan.using('{group.name}', '{raw}', dim=...)"
        return replace(refusal, reason=refusal.reason + more)

    def raws(self, group: Group, coupling: Coupling) -> list[str]:
        """Return raw tensors that the neurons meet and that may have a place for each of them."""
        makers, own = group.owners("produce"), {s.parameter for s in group.slices}
        whole = coupling.whole.items()
        met = dict.fromkeys(n for (name, _), seen in whole if name in makers for n in seen.touched)
        return [
            name
            for name in met
            if name not in own
            and self.is_users(name)
            and any(n > 1 and n % group.size == 0 for n in self.probe.tensors[name].shape)
        ]

    def _argument_beside(self, group: Group, coupling: Coupling) -> str:
        """Return the argument whose entries meet the neurons one by one, as in `x + rnn(x)`."""
        makers = group.owners("produce")
        names = argument_names(self.probe.model, self.probe.arguments)
        for index, leaf in enumerate(tensors_in(self.probe.arguments)):
            beside = {}
            for port, moved in self.moved.get(index, {}).items():
                reads = coupling.reads[port].items()
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
