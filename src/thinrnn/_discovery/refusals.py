"""Why a neuron has to stay: what else, besides the layers that read it, depends on it."""

from collections import defaultdict

import torch
from torch import nn

from thinrnn._discovery.coupling import Coupling
from thinrnn._discovery.inputs import parameters_of
from thinrnn._discovery.probe import Probe, Source
from thinrnn._discovery.raw_tensors import RawTensor
from thinrnn._discovery.recording import Seen
from thinrnn._layers.feedforward import RECURRENT, CellLayer, layer_of
from thinrnn._model.tree import tensors_in

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


class Leaks:
    """Finds the reasons; `carried` are the layers whose state is given as an argument."""

    def __init__(self, probe: Probe, carried: set[str]) -> None:
        self.probe, self.carried = probe, carried
        self.states = self._returned_states()

    def reason(self, source: Source, coupling: Coupling, label: str) -> str:
        """Return why the neurons of a source have to stay, or an empty text."""
        whole, visible = coupling.whole[source], coupling.shown[source]
        mixed_at = [port for port, mixed in coupling.mixed.items() if source in mixed]
        if whole.astray:
            return whole.astray
        if whole.chosen:
            return f"it decides which rows '{next(iter(whole.chosen))}' looks up"
        if isinstance(self.probe.layers.get(source[0]), RawTensor) and source in coupling.explained:
            return ""
        raws, mixers = coupling.raws.get(source, []), self._mixers(whole)
        if source in coupling.explained or (raws and not mixers and (visible or mixed_at)):
            first = f"plan.using('{label}', '{raws[0]}', dim=...)"
            return f"also read by raw parameters: {', '.join(raws)}; declare them with {first}"
        if visible:
            return "returned to the caller"
        if mixed_at:
            return f"mixed with others {mixers}before '{mixed_at[0][0]}' reads it"
        return ""

    def shown(self, source: Source, seen: Seen) -> set[int]:
        """Return which of the returned tensors show a source, its own state not counted."""
        return {i for i in seen.returned if source[0] not in self.states[i]}

    def is_users(self, tensor: str) -> bool:
        """Whether it is the user's own code that holds a raw tensor, or uses a layer's one."""
        return self._foreign_home(tensor) is None

    def _mixers(self, seen: Seen) -> str:
        """Return the first module of torch's that the neurons meet and that may mix them."""
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
            if is_torchs and not isinstance(module, CONTAINERS) and not layer_of(name, module):
                return name
        return None

    def _returned_states(self) -> dict[int, set[str]]:
        """Return, per returned tensor, the layers whose state it is and which take it back."""
        parameters = parameters_of(self.probe.model)
        places = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        args, kwargs = self.probe.arguments
        is_open = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)
        given = sum(a is not None for a in [*args, *kwargs.values()])
        has_room = is_open or len(places) > given
        leaves = self.probe.base.returned
        found: dict[int, set[str]] = defaultdict(set)
        for name, layer in self.probe.layers.items():
            if not isinstance(layer, RECURRENT) or not (has_room or name in self.carried):
                continue
            last = self.probe.points[0].results[name][-1]
            for state in tensors_in(last if isinstance(layer, CellLayer) else last[1]):
                for i, leaf in enumerate(leaves):
                    if leaf.shape == state.shape and torch.equal(leaf, state):
                        found[i].add(name)
        return found if len(found) < len(leaves) else defaultdict(set)
