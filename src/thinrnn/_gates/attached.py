"""What gates are on a model: parameters, hooks, and weights multiplied by the gates.

    model(x) ──▶ pre-hook: draw each gate once, hang gated weights over the layers that read them
                 forward as the user wrote it, fused kernels included
             ──▶ post-hook: take the gated weights off again

Gated weights are hung over a module by an entry in its `__dict__`, which Python finds before the
parameter of the same name. Parameters, `state_dict` keys and the user's code stay as they were.
"""

import contextlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from thinrnn._gates.checkpointing import Draws, is_in_backward
from thinrnn._gates.distributed import follow_, hand_out_, need_whole, wrapper_now
from thinrnn._gates.estimators import Estimator
from thinrnn._gates.gate import Gate
from thinrnn._gates.nan_gradients import guard_
from thinrnn._gates.norms import find_norms, over_open_
from thinrnn._gates.readers import Placement, Reader, find_readers
from thinrnn._gates.scaled_weight import in_one_piece, is_transformed
from thinrnn._gates.sizes import Sizes
from thinrnn._gates.threads import Turn, calls_on_stack
from thinrnn._layers.recurrent import RNNLayer, has_computed_weights
from thinrnn._layers.registry import layers_of
from thinrnn._model.copying import copy_module
from thinrnn._model.patching import Gone, remove_hooks_
from thinrnn.errors import GateError, PlanError
from thinrnn.plan import Plan

Hook = Callable[[nn.Module, Any, Any], tuple[Any, Any]]


class Attached:
    """The gates of a model, the parameters they act on, and the hooks that apply them."""

    def __init__(
        self, model: nn.Module, plan: Plan, estimator: Estimator, placement: Placement
    ) -> None:
        need_whole(model, model.parameters())
        find_readers(model, plan)  # raises, if it does, before the model is changed
        self.placement = placement
        self.model = model
        self.first_plan = plan  # as attached; `plan` follows the model when it shrinks
        self.plan = plan
        self.estimator = estimator
        self.sizes = Sizes(model, plan)
        self.gates: dict[str, Gate] = {}
        reference = next(p for p in model.parameters() if p.is_floating_point())
        wide = torch.float64 if reference.dtype == torch.float64 else torch.float32
        for group in plan.groups:
            start = estimator.start(group.size)
            gate = Gate(group.name, model, estimator, start)
            log_alpha = nn.Parameter(start.to(reference.device, wide))
            guard_(log_alpha)
            model.register_parameter(gate.key("log_alpha"), log_alpha)
            origin = torch.arange(group.size, device=reference.device)
            model.register_buffer(gate.key("origin"), origin)
            self.gates[group.name] = gate
        self.depth = 0
        self.last: dict[str, Tensor] = {}  # the last sample, cut off from its graph
        self.draws = Draws()  # what the last ones were drawn from
        self.turn = Turn()
        self.layers = layers_of(model)
        self.input_hooks: Mapping[str, Hook] = {}  # they narrow what arrives at full width
        self.is_frozen = False  # gates learn no more: training uses their test-time values
        self.given: Mapping[str, Tensor] | None = None  # what training uses instead of a sample
        self._folded: tuple[tuple[int, ...], bool] | None = None  # for which gates, what was seen
        self.changes = 0  # of the parameters that learn: DistributedDataParallel has to follow
        self.follow(plan, {})

    def follow(self, plan: Plan, input_hooks: Mapping[str, Hook]) -> None:
        """Set readers and hooks for a plan: at the start, and after each cut."""
        self.plan = plan
        self.changes += 1
        remove_hooks_(self.model, self._is_own)
        self.readers = find_readers(self.model, plan, self.placement)
        self.of_module: dict[nn.Module, list[Reader]] = defaultdict(list)
        for reader in self.readers:
            for module, _ in reader.all_homes:
                if reader not in self.of_module[module]:
                    self.of_module[module].append(reader)
        self.norms = find_norms(self.model, plan)
        self.model.register_forward_pre_hook(self._enter_model, prepend=True)
        self.model.register_forward_hook(self._leave_model, always_call=True)
        self.model.register_load_state_dict_pre_hook(self._check_state)
        norms = [norm.module for norm in self.norms]
        for module in norms:
            module.register_forward_hook(self._over_open, with_kwargs=True)
        for module in dict.fromkeys([*self.of_module, *norms]):
            if module is not self.model:
                # before a hook of weight norm, which computes the weight from what is gated
                module.register_forward_pre_hook(self._enter_layer, prepend=True)
                module.register_forward_hook(self._leave_layer, always_call=True)
        self.input_hooks = input_hooks
        for name, hook in input_hooks.items():
            self.model.get_submodule(name).register_forward_pre_hook(hook, with_kwargs=True)

    def remove(self) -> None:
        """Take hooks, gates and this object off the model."""
        self._leave_(self.model, self)

    def _leave_(self, model: nn.Module, own: object) -> None:
        remove_hooks_(model, lambda hook: hook is own)
        for gate in self.gates.values():
            del model._parameters[gate.key("log_alpha")]
            del model._buffers[gate.key("origin")]
        del model.__dict__["_thinrnn"]

    def _is_own(self, hook: object) -> bool:
        return hook is self or any(hook is other for other in self.input_hooks.values())

    def copy_without(self, memo: dict[int, Any]) -> nn.Module:
        """Return a copy of the model without gates; `memo` holds tensors to put in, by id."""
        gone = Gone()
        memo |= {id(thing): gone for thing in (self, *self.input_hooks.values())}
        clone = copy_module(self.model, memo)
        self._leave_(clone, gone)
        return clone

    def values(self, groups: Iterable[str]) -> dict[str, Tensor]:
        """Return the gates for one call: a fresh sample in training, the estimate in eval."""
        if self.is_frozen or not self.model.training:
            return {name: self.gates[name].value for name in groups}
        if self.given is not None:
            return {name: self.given[name] for name in groups}
        drawn = self._drawn(list(groups))
        # a sample with its graph would keep the gates' gradient accumulators alive, on the stream
        # where they were made, and no CUDA graph could be captured on another
        self.last.update({name: value.detach() for name, value in drawn.items()})
        return drawn

    def freeze_(self) -> None:
        """Let the gates learn no more: from now on training uses their values in eval."""
        self.is_frozen = True
        self.changes += 1
        for gate in self.gates.values():
            gate.log_alpha.requires_grad_(False)

    def unfreeze_(self) -> None:
        """Let frozen gates learn again, from the start where they had been folded away."""
        if not self.is_frozen:
            return
        if self.is_folded:
            for gate in self.gates.values():
                gate.log_alpha = start = self.estimator.start(gate.size)
                gate.start[gate.origin.cpu()] = start.to(gate.start)
        self.is_frozen = False
        self.changes += 1
        for gate in self.gates.values():
            gate.log_alpha.requires_grad_(True)

    @property
    def is_folded(self) -> bool:
        """Whether gates learn no more and are all 1, so that they need not be applied."""
        if not self.is_frozen:
            return False
        now = tuple(gate.log_alpha._version for gate in self.gates.values())
        if self._folded is None or self._folded[0] != now:
            are_one = all(bool((gate.value == 1).all()) for gate in self.gates.values())
            self._folded = (now, are_one)
        return self._folded[1]

    def _drawn(self, groups: list[str]) -> dict[str, Tensor]:
        """Return one sample per gate, all groups in one go."""
        log_alpha, uniform = self.noisy(groups)
        return self.split(groups, self.estimator.sample(log_alpha, uniform))

    def noisy(self, groups: list[str]) -> tuple[Tensor, Tensor]:
        """Return `log_alpha` of the groups in one piece, and noise to draw their gates from."""
        gates = [self.gates[name] for name in groups]
        if not torch.compiler.is_compiling():
            for gate in gates:  # a copied parameter has lost its mark
                guard_(gate.log_alpha)
        log_alpha = torch.cat([gate.wide_log_alpha for gate in gates])
        uniform = self._noise(gates, log_alpha)
        if log_alpha.numel() < uniform.numel():
            starts = accumulate((gate.full_size for gate in gates), initial=0)
            present = [g.origin + s for g, s in zip(gates, starts, strict=False)]
            uniform = uniform[torch.cat(present)]
        return log_alpha, uniform

    def split(self, groups: list[str], joint: Tensor) -> dict[str, Tensor]:
        """Return the gates of each group, given those of all groups in one piece."""
        return dict(zip(groups, joint.split([self.gates[g].size for g in groups]), strict=True))

    @contextlib.contextmanager
    def using(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        """Inside `with`, calls in training use these gates instead of a sample."""
        self.given = values
        try:
            yield
        finally:
            self.given = None

    def _noise(self, gates: list[Gate], like: Tensor) -> Tensor:
        """Return noise for the groups as they were at first.

        So removing neurons leaves the noise of the others, and all random numbers after it, as
        they were. Under DistributedDataParallel all ranks use the noise of the first one.
        Checkpointing runs layers again inside the backward pass: they get the noise of their first
        run; if it is the whole model, noise is drawn all the same, as on the first run.
        """
        sizes = {gate.name: gate.full_size for gate in gates}
        if is_in_backward() and not self.depth:
            known = self.draws.of_layer(sizes.keys())
            if known is not None:
                return known
        uniform = torch.rand(sum(sizes.values()), device=like.device, dtype=like.dtype)
        if is_in_backward():
            return self.draws.of_model(sizes.keys(), uniform)
        drawn = uniform
        if (wrapper := wrapper_now()) is not None:
            uniform = drawn.clone()
            hand_out_(uniform, wrapper)
        noise = dict(zip(sizes, uniform.split(list(sizes.values())), strict=True))
        self.draws.add(noise, drawn)
        return uniform

    def rnns(self) -> list[str]:
        """Return the names of the modules that were RNNs of torch when gates were attached."""
        return [name for name, layer in self.layers.items() if isinstance(layer, RNNLayer)]

    def open_probabilities(self) -> dict[str, Tensor]:
        """Return P(gate != 0) of every original neuron; 0 for those that were removed."""
        log_alpha = torch.cat([gate.wide_log_alpha for gate in self.gates.values()])
        joint = self.estimator.open_probability(log_alpha)
        parts = joint.split([gate.size for gate in self.gates.values()])
        found = {}
        for (name, gate), probability in zip(self.gates.items(), parts, strict=True):
            if gate.size < gate.full_size:
                nothing = probability.new_zeros(gate.full_size)
                probability = nothing.index_copy(0, gate.origin, probability)
            found[name] = probability
        return found

    def _enter_model(self, module: nn.Module, args: Any) -> None:
        if module is not self.model:
            raise GateError(
                f"this {type(module).__name__} is a replica, of nn.DataParallel say, which shares "
                "its gates with another object: use DistributedDataParallel, or copy.deepcopy."
            )
        if self.turn.is_mine and calls_on_stack(sys._getframe(), module) == 1:
            self.turn.end(module)  # Ctrl-C has skipped the hook that leaves
            self._forget_call()
        self._begin_turn(module)
        self.depth += 1
        if self.depth == 1:
            self._need_followers()
            if self.is_folded:
                return
            with _unseen_by_checkpointing():
                self._hang(self.readers, None, self.values(self.gates))

    def _leave_model(self, module: nn.Module, args: Any, result: Any) -> None:
        if self._is_outside:
            return
        self.depth = max(self.depth - 1, 0)  # 0 already if another's hook raised before ours
        if self.depth == 0:
            self._take_off(self.readers, None)
            self.turn.end(module)

    def _enter_layer(self, module: nn.Module, args: Any) -> None:
        self._begin_turn(module)
        if self.depth == 0:
            self._need_followers()
        if self.depth == 0 and not self.is_folded:
            # a layer called on its own, not from the model's forward
            readers = self.of_module.get(module, [])
            used = [group for reader in readers for group in reader.groups]
            used += [g for norm in self.norms if norm.module is module for g in norm.axis.groups]
            groups = dict.fromkeys(used)
            with _unseen_by_checkpointing():
                self._hang(readers, module, self.values(groups))

    def _leave_layer(self, module: nn.Module, args: Any, result: Any) -> None:
        if self.depth == 0 and not self._is_outside:
            self._take_off(self.of_module.get(module, []), module)
            self.turn.end(module)

    def _over_open(self, module: nn.Module, args: Any, kwargs: Any, result: Any) -> Any:
        return over_open_(module, args, kwargs, result)

    def _begin_turn(self, module: nn.Module) -> None:
        if not torch.compiler.is_compiling() and self.turn.begin(module):
            self._forget_call()

    def _forget_call(self) -> None:
        self._take_off(self.readers, None)
        self.depth = 0

    @property
    def _is_outside(self) -> bool:
        """Whether the call that ends here never began: a hook of the user raised before ours."""
        return not torch.compiler.is_compiling() and not self.turn.is_mine

    def _need_followers(self) -> None:
        """Let a DistributedDataParallel around this call know which parameters learn."""
        learned = [gate.log_alpha for gate in self.gates.values()]
        need_whole(self.model, [reader.weight for reader in self.readers])
        if torch.is_grad_enabled() and (wrapper := wrapper_now()) is not None:
            follow_(wrapper, self, self.changes, learned)

    def _hang(
        self, readers: list[Reader], only: nn.Module | None, values: dict[str, Tensor]
    ) -> None:
        covered: dict[nn.Module, dict[str, Tensor]] = defaultdict(dict)
        for norm in self.norms:
            if only is None or norm.module is only:
                norm.hang(values, self.gates)
        for reader in readers:
            for part, gated in reader.parts(values):
                for module, name in part.homes:
                    if only is None or module is only:
                        covered[module][name] = gated
        for module, weights in covered.items():
            if isinstance(module, nn.RNNBase) and not has_computed_weights(module):
                module._update_flat_weights()  # torch would, in forward, and undo what is hung
                module.__dict__.setdefault("_thinrnn_flat", module._flat_weights)
                dtype = next(iter(weights.values())).dtype  # cuDNN needs one type for all
                named: Any = zip(module._flat_weights_names, module._flat_weights, strict=True)
                flat = [weights.get(n, w).to(dtype) for n, w in named]
                module.__dict__["_flat_weights"] = in_one_piece(flat) if flat[0].is_cuda else flat
            else:  # an RNN with computed weights collects all of them in each call
                module.__dict__.update(weights)

    def _take_off(self, readers: list[Reader], only: nn.Module | None) -> None:
        for norm in self.norms:
            if only is None or norm.module is only:
                norm.take_off()
        for reader in readers:
            for module, name in reader.all_homes:
                if only is not None and module is not only:
                    continue
                if isinstance(module, nn.RNNBase):
                    flat = module.__dict__.pop("_thinrnn_flat", None)
                    if flat is not None:
                        module.__dict__["_flat_weights"] = flat
                module.__dict__.pop(name, None)

    def _check_state(self, module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
        own = {k for k in [*module._parameters, *module._buffers] if k.startswith("thinrnn:")}
        given = {k[len(prefix) :] for k in state if k.startswith(f"{prefix}thinrnn:")}
        wrong = sorted((own ^ given) if given else ())
        for key in own & given:
            here, there = getattr(module, key), state[prefix + key]
            same = here.shape == there.shape
            if same and key.endswith(":origin"):
                same = torch.equal(here.cpu(), there.cpu())
            if not same:
                wrong.append(key)
        if wrong:
            names = ", ".join(sorted({k.split(":")[1].replace("/", ".") for k in wrong}))
            raise PlanError(
                f"these weights were saved with another plan: groups {names} differ. Attach the "
                "plan they were trained with (Plan.from_json), and cut_ it if it had shrunk."
            )


def _unseen_by_checkpointing() -> Any:
    """Return a context in which what is saved for backward stays out of checkpointing's count.

    A layer that is run again gets its gated weights from another place than on the first run.
    """
    if is_transformed():  # torch.func takes no such hooks
        return contextlib.nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
