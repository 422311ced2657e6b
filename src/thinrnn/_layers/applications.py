"""How often a call applies each matrix: counted where torch multiplies, whatever code asks for it.

conv.weight            640    its places in all sequences
lstm.weight_ih_l0       40    time steps in all sequences
head.weight              2    the last state of each sequence
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from thinrnn._layers.registry import layers_of
from thinrnn._model.isolation import run
from thinrnn._model.operations import OperationMode
from thinrnn._model.tree import Arguments, tensors_in
from thinrnn.plan import named_tensors

aten: Any = torch.ops.aten
FACTORS = {aten.mm: (0, 1), aten.bmm: (0, 1), aten.mv: (0, 1)}
FACTORS |= {aten.addmm: (1, 2), aten.baddbmm: (1, 2), aten.addmv: (1, 2)}
CONVOLUTIONS = (aten.convolution, aten._convolution)
FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer)  # in float64, too
LOOKUPS = (aten.embedding, aten._embedding_bag, aten._embedding_bag_forward_only)


class Applications:
    """How often the calls of a model apply each of its parameters.

    Attributes:
        multiplied: vectors, or places of a convolution, that each matrix multiplies, by name.
        looked_up: rows that are picked from each table, by name.
        steps: what the recurrent layer multiplies that takes in most, or without such a layer the
            matrix that multiplies most.
    """

    def __init__(self, model: nn.Module, counting: "_Counting") -> None:
        self.multiplied = {name: _whole(times) for name, times in counting.multiplied.items()}
        self.looked_up = dict(counting.looked_up)
        recurrent = [name for name, layer in layers_of(model).items() if layer.is_recurrent]
        homes = {name: name.rpartition(".")[0] for name in self.multiplied}
        inside = [times for name, times in self.multiplied.items() if homes[name] in recurrent]
        self.steps = max(inside or self.multiplied.values(), default=1.0)

    def per_step(self) -> dict[str, float]:
        """Return how often a step applies each matrix, on average."""
        return {name: times / self.steps for name, times in self.multiplied.items()}


def applications(model: nn.Module, arguments: Arguments) -> Applications:
    """Return how often a call of a model in eval applies each of its parameters."""
    with counting(model) as counts:
        run(model, arguments)
    return Applications(model, counts)


@contextmanager
def counting(model: nn.Module) -> Iterator["_Counting"]:
    """Inside `with`, count what the calls of a model apply, for `Applications`."""
    counts = _Counting(model)
    with _products_of_torch(model), counts:
        yield counts


def _whole(times: float) -> float:
    """Return a sum of parts without its rounding."""
    return float(round(times)) if abs(times - round(times)) < 1e-6 else times


@contextmanager
def _products_of_torch(model: nn.Module) -> Iterator[None]:
    """Keep torch from fused kernels, in which the products cannot be seen.

    The switches are those of all threads, so they stay as they are for models without such kernels.
    """
    tensors = named_tensors(model).values()
    is_plain = all(
        t.dtype == torch.float64 and not t.is_cuda for t in tensors if t.is_floating_point()
    )
    if is_plain and not any(isinstance(module, FUSED) for module in model.modules()):
        yield
        return
    is_fast, has_mkldnn = torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    torch._C._set_mkldnn_enabled(False)
    try:
        with torch.backends.cudnn.flags(enabled=False):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(is_fast)
        torch._C._set_mkldnn_enabled(has_mkldnn)


class _Counting(OperationMode):
    """Sees the operations that layers are made of; parameters are known by where they lie.

    What is computed from parameters alone, such as a normalised weight, counts for those of them
    that are matrices; of two parameters that are multiplied, the smaller one is a learned state.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.multiplied: dict[str, float] = defaultdict(float)
        self.looked_up: dict[str, float] = defaultdict(float)
        named = reversed(named_tensors(model).items())
        held = {t.data_ptr(): (name, t) for name, t in named if t.numel()}
        self.wide = {name for name, t in held.values() if sum(n > 1 for n in t.shape) > 1}
        self.starts = sorted(held)
        self.held = [held[start] for start in self.starts]
        # what is computed from parameters: which, its size, and whether it is still there
        self.derived: dict[int, tuple[frozenset[str], int, StorageWeakRef]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kind = func.overloadpacket
        result = func(*args, **(kwargs or {}))
        if kind in FACTORS:
            a, b = (args[i] for i in FACTORS[kind])
            products = a.numel() * (b.shape[-1] if b.dim() > 1 and kind is not aten.mv else 1)
            self._count(self.multiplied, max(a, b, key=self._weight), products)
        elif kind in CONVOLUTIONS:
            x, weight, is_turned = args[0], args[1], args[6]
            places = x if is_turned else result
            self._count(self.multiplied, weight, places.numel() // places.shape[1] * weight.numel())
        elif kind in LOOKUPS:
            self._count(self.looked_up, args[0], args[1].numel() * args[0].numel())
        else:
            self._derive(result, [*tensors_in((args, kwargs or {}))])
        return result

    def _count(self, counts: dict[str, float], factor: Tensor, products: int) -> None:
        names, size = self._source(factor)
        for name in names & self.wide or names:
            counts[name] += products / size

    def _weight(self, factor: Tensor) -> int:
        """Return the size of what a factor comes from, and 0 if the call computes it."""
        names, size = self._source(factor)
        return size if names else 0

    def _derive(self, result: Any, given: list[Tensor]) -> None:
        sources = [self._source(tensor)[0] for tensor in given]
        if not all(sources) or not sources:
            return
        for tensor in tensors_in(result):
            if tensor.numel() and not self._source(tensor)[0]:
                storage = tensor.untyped_storage()
                names = frozenset().union(*sources)
                entry = (names, tensor.numel(), StorageWeakRef(storage))
                self.derived[storage.data_ptr()] = entry

    def _source(self, tensor: Tensor) -> tuple[frozenset[str], int]:
        """Return the parameters that a tensor is a part of or computed from, and their size."""
        start = tensor.data_ptr()
        place = bisect_right(self.starts, start) - 1
        if place >= 0:
            name, held = self.held[place]
            if start < self.starts[place] + held.numel() * held.element_size():
                return frozenset([name]), held.numel()
        found = self.derived.get(tensor.untyped_storage().data_ptr())
        if found is None or found[2].expired():
            return frozenset(), 1
        return found[:2]
