"""Layers without a module: parameters and buffers that a model's own code uses directly."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from thinrnn._layers.base import Layer, Slot
from thinrnn._model.tree import is_number


class ModulelessLayer(Layer):
    """A layer whose slots name parameters of the model by their full names."""

    is_plain = False

    def __init__(self, name: str) -> None:
        super().__init__(name, None)  # type: ignore[arg-type]
        self.build()

    def has(self, parameter: str) -> bool:
        return True

    def full_name(self, what: str) -> str:
        return what


class FunctionalLinear(ModulelessLayer):
    """`F.linear(x, self.embedding.weight)`, or with a weight that is `turned` by `.t()`."""

    def __init__(
        self, weight: Tensor, weight_name: str, bias_name: str | None, turned: bool = False
    ) -> None:
        self.weight, self.weight_name, self.bias_name = weight, weight_name, bias_name
        self.turned = turned
        what = f"{weight_name}.t()" if turned else weight_name
        super().__init__(f"linear({what})")

    def build(self) -> None:
        n, m = self.weight.shape
        bias = self.rows(self.bias_name) if self.bias_name else []
        self.add("input", m, Slot(self.weight_name, 1 - self.turned, (0,), "read"))
        self.add("output", n, Slot(self.weight_name, int(self.turned), (0,), "produce"), *bias)

    def label(self, space: str) -> str:
        turned = f"{self.weight_name.removesuffix('.weight')}.t"
        return turned if self.turned and space == "output" else super().label(space)


class RawTensor(ModulelessLayer):
    """`x * self.scale`, `x + self.positions`: a tensor of which neurons may own positions."""

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.tensor = tensor
        super().__init__(name)

    def build(self) -> None:
        for dim, size in enumerate(self.tensor.shape):
            if size > 1:
                self.add(f"dim{dim}", size, Slot(self.name, dim, (0,), "produce"))

    def label(self, space: str) -> str:
        return self.name


READS = (Tensor.numpy, Tensor.tolist, Tensor.__array__, Tensor.data_ptr)  # not for torch to see
NORMS = (F.layer_norm, F.rms_norm, F.group_norm)
TURNS = (Tensor.t, torch.t, Tensor.T.__get__)  # type: ignore[attr-defined]


class RawTensorMode(TorchFunctionMode):
    """Sees every torch function: linear layers without a module, and raw tensors in use.

    `linear` replaces `F.linear` on the model's own parameters; `touch` is called each time raw
    tensors meet other values, with their names and those values.
    """

    def __init__(
        self,
        held: Mapping[int, str],
        linear: Callable[[FunctionalLinear, Any, Any], Any],
        touch: Callable[[frozenset[str], list[Tensor]], None],
    ) -> None:
        self.held, self.linear, self.touch = held, linear, touch
        self.inside = 0  # a layer's own forward is running
        self.left_torch = False  # values went where no operation of torch is seen
        self.used: set[str] = set()
        self.norms: dict[str, str] = {}  # functions of torch that norm, by their raw weights
        self.derived: dict[int, tuple[Tensor, frozenset[str]]] = {}
        self.turned: dict[int, str] = {}  # matrices of the model, turned
        self.constant: dict[int, Tensor] = {}  # made by the code from no other values
        super().__init__()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.inside:
            return func(*args, **kwargs)
        if func in READS and args[0].is_floating_point():
            self.left_torch = True
        if func is F.linear and (found := self._functional_linear(args, kwargs)) is not None:
            return self.linear(found, args, kwargs)
        given = [*_tensors(args), *_tensors(kwargs.values())]
        named = [self._names(t) for t in given]
        result = func(*args, **kwargs)
        names = frozenset().union(*named)
        self.used |= names
        self._note_constants(func, given, result)
        if func in NORMS:
            self.norms |= dict.fromkeys(names or [""], func.__name__)
        if names:
            others = [t for t, own in zip(given, named, strict=True) if not own]
            if any(id(t) not in self.constant and is_number(t) for t in others):
                self.touch(names, others)
            else:  # views, sums, powers, rows looked up by an index
                for t in _tensors((result,)):
                    self.derived[id(t)] = (t, names)  # the tensor is held so that its id stays its
            if func in TURNS and id(given[0]) in self.held and given[0].dim() == 2:
                self.turned[id(result)] = self.held[id(given[0])]
        return result

    def _note_constants(self, func: Any, given: list[Tensor], result: Any) -> None:
        """Note numbers that no input has a part in, such as `torch.arange(n).to(x)`."""
        name = getattr(func, "__name__", "")
        in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        if in_place and given:  # x[0] = h, x.copy_(h)
            self.constant.pop(id(given[0]), None)
            return
        sources = [] if name.endswith("_like") or name.startswith("new_") else given
        sources = sources[:1] if name in ("to", "type_as") else sources
        if all(id(t) in self.constant for t in sources):
            self.constant.update((id(t), t) for t in _tensors((result,)))

    def _names(self, tensor: Tensor) -> frozenset[str]:
        if id(tensor) in self.held:
            return frozenset([self.held[id(tensor)]])
        return self.derived[id(tensor)][1] if id(tensor) in self.derived else frozenset()

    def _functional_linear(self, args: Any, kwargs: Any) -> FunctionalLinear | None:
        weight = args[1] if len(args) > 1 else kwargs.get("weight")
        bias = args[2] if len(args) > 2 else kwargs.get("bias")
        is_turned = id(weight) in self.turned
        name = self.turned.get(id(weight)) or self.held.get(id(weight))
        if name is None or (bias is not None and id(bias) not in self.held):
            return None
        bias_name = None if bias is None else self.held[id(bias)]
        self.used |= {name}
        return FunctionalLinear(weight, name, bias_name, is_turned)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors among the arguments of a torch function, lists of tensors included."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
