"""Layers without a state: linear, convolutions, embeddings, and those that act channel by channel.

Each class describes where a module's neurons are in its parameters; see `Layer`.
"""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from thinrnn._layers.base import Intake, Layer, Slot, argument
from thinrnn.group import Role


class LinearLayer(Layer):
    """`nn.Linear`."""

    module: nn.Linear
    matrices = ("weight",)

    def build(self) -> None:
        n, m = self.module.weight.shape
        self.add("input", m, *self.columns("weight"))
        self.add("output", n, *self.rows("weight", "bias"))

    def resize(self) -> None:
        self.module.out_features, self.module.in_features = self.module.weight.shape


class ConvLayer(Layer):
    """`nn.Conv1d`, `nn.Conv2d`, `nn.Conv3d`: channels come before the dimensions of space.

    Groups stay of equal size: the first channels of all groups go together, and so on. Where each
    group reads one channel, as in a depthwise convolution, whole groups go.
    """

    module: nn.Conv1d | nn.Conv2d | nn.Conv3d
    matrices = ("weight",)

    def build(self) -> None:
        n, width = self.module.weight.shape[:2]
        self.axis = 1 - self.module.weight.dim()
        self.reads_one = width == 1 and self.module.groups > 1
        if not self.reads_one:
            every = Slot("weight", 1, (0,), "read", width if self.module.groups > 1 else 0)
            self.add("input", width * self.module.groups, every)
        elif n > self.module.groups:
            self.add("input", self.module.groups)
        self.add("output", n, *self.rows("weight", "bias"))

    def ties(self) -> Iterator[list[tuple[str, int]]]:
        n, groups = len(self.module.weight), self.module.groups
        each = n // groups  # outputs of a group
        if self.reads_one and each > 1:
            for group in range(groups):
                outputs = range(each * group, each * (group + 1))
                yield [("input", group), *(("output", j) for j in outputs)]
        elif not self.reads_one and groups > 1:
            yield from ([("output", j) for j in range(i, n, each)] for i in range(each))

    def resize(self) -> None:
        module = self.module
        n, width = module.weight.shape[:2]
        if width == 1 and module.in_channels == module.groups > 1:
            module.groups = n * module.groups // module.out_channels
        module.in_channels, module.out_channels = width * module.groups, n


class ConvTransposeLayer(Layer):
    """`nn.ConvTranspose1d`, `2d` and `3d`: the weight has input channels first.

    Groups are as in `ConvLayer`.
    """

    module: nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
    matrices = ("weight",)

    def build(self) -> None:
        m, width = self.module.weight.shape[:2]
        groups = self.module.groups
        self.axis = 1 - self.module.weight.dim()
        if groups == m > 1 and width == 1:
            self.add("output", m, *self.rows("weight", "bias"))
            return
        role: Role = "produce" if groups == m > 1 else "read"
        self.add("input", m, Slot("weight", 0, (0,), role))
        outputs = Slot("weight", 1, (0,), "produce", width if groups > 1 else 0)
        self.add(
            "output", width * groups, *([outputs] if role == "read" else []), *self.rows("bias")
        )

    def ties(self) -> Iterator[list[tuple[str, int]]]:
        (m, width), groups = self.module.weight.shape[:2], self.module.groups
        if groups == m and width > 1 < groups:
            for group in range(groups):
                outputs = range(width * group, width * (group + 1))
                yield [("input", group), *(("output", j) for j in outputs)]
        elif 1 < groups < m:
            each = m // groups
            yield from ([("input", j) for j in range(i, m, each)] for i in range(each))

    def resize(self) -> None:
        module = self.module
        m, width = module.weight.shape[:2]
        if module.in_channels == module.groups > 1:
            module.groups = m
        module.in_channels, module.out_channels = m, width * module.groups


class EmbeddingLayer(Layer):
    """`nn.Embedding`: its input picks rows, and its neurons are the columns."""

    module: nn.Embedding
    matrices = ("weight",)
    multiplies = False

    def build(self) -> None:
        self.add("output", self.module.weight.shape[1], Slot("weight", 1, (0,), "produce"))

    def intakes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Intake]:
        return iter(())

    def choices(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
        yield argument(args, kwargs, 0, "input")

    def resize(self) -> None:
        self.module.embedding_dim = self.module.weight.shape[1]

    def refusal(self) -> str:
        if self.module.max_norm is not None:
            return "max_norm rescales whole rows, which mixes the neurons"
        return ""


class ChannelwiseLayer(Layer):
    """Batch norm, instance norm and PReLU: channel j of the input becomes channel j."""

    multiplies = False
    tensors: tuple[str, ...] = ("weight", "bias", "running_mean", "running_var")

    def build(self) -> None:
        size = next(t.shape[0] for n in self.tensors if (t := getattr(self.module, n)) is not None)
        self.axis = -2 if isinstance(self.module, nn.InstanceNorm1d) else 1  # (C, T) has no batch
        self.add("output", size, *self.rows(*self.tensors))

    def resize(self) -> None:
        tensors = (*self.module.parameters(), *self.module.buffers())
        self.module.num_features = tensors[0].shape[0]

    def refusal(self) -> str:
        if self.module.weight is None and self.module.running_mean is None:
            return "it has no tensor per channel"
        return ""


class PReLULayer(ChannelwiseLayer):
    """`nn.PReLU` with one slope for each channel."""

    module: nn.PReLU
    tensors = ("weight",)

    def resize(self) -> None:
        self.module.num_parameters = self.module.weight.shape[0]

    def refusal(self) -> str:
        return "one slope serves all neurons" if self.module.num_parameters == 1 else ""
