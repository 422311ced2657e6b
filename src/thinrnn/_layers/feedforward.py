"""Layers without a state: linear, convolutions, embeddings, and those that act channel by channel.

Each class describes where a module's neurons are in its parameters; see `Layer`.
"""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from thinrnn._layers.base import Intake, Layer, Slot, argument


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
    """`nn.Conv1d`, `nn.Conv2d`, `nn.Conv3d`: channels come before the dimensions of space."""

    module: nn.Conv1d | nn.Conv2d | nn.Conv3d
    matrices = ("weight",)

    def build(self) -> None:
        n, m = self.module.weight.shape[:2]
        self.axis = 1 - self.module.weight.dim()
        if self.module.groups == 1:
            self.add("input", m, *self.columns("weight"))
        self.add("output", n, *self.rows("weight", "bias"))

    def resize(self) -> None:
        module = self.module
        module.out_channels = module.weight.shape[0]
        if module.groups > 1:  # depthwise
            module.groups = module.out_channels
        module.in_channels = module.weight.shape[1] * module.groups

    def refusal(self) -> str:
        groups = self.module.groups
        if groups > 1 and not groups == self.module.in_channels == self.module.out_channels:
            return "grouped convolutions other than depthwise ones tie whole blocks of channels"
        return ""


class ConvTransposeLayer(Layer):
    """`nn.ConvTranspose1d`, `2d` and `3d`: the weight has input channels first."""

    module: nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
    matrices = ("weight",)

    def build(self) -> None:
        m, n = self.module.weight.shape[:2]
        self.axis = 1 - self.module.weight.dim()
        self.add("input", m, Slot("weight", 0, (0,), "read"))
        self.add("output", n, Slot("weight", 1, (0,), "produce"), *self.rows("bias"))

    def resize(self) -> None:
        self.module.in_channels, self.module.out_channels = self.module.weight.shape[:2]

    def refusal(self) -> str:
        return "grouped transposed convolutions are not supported" if self.module.groups > 1 else ""


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
