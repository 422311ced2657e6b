"""Norms over a whole row of neurons: `nn.LayerNorm`, `nn.RMSNorm` and `nn.GroupNorm`.

Each output depends on all neurons through their mean and variance, so cutting one changes the
others. With `find_groups(..., through_norms=True)` the gated model takes mean and variance over
open neurons alone, which is what the same norm does in the small model.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from thinrnn._layers.feedforward import ChannelwiseLayer


class NormLayer(ChannelwiseLayer):
    """A norm whose channel j of the input becomes channel j, divided by what all have in common."""

    module: nn.LayerNorm | nn.RMSNorm | nn.GroupNorm
    tensors = ("weight", "bias")

    def build(self) -> None:
        self.axis = 1 if isinstance(self.module, nn.GroupNorm) else -1
        self.add("output", channels_of(self.module), *self.rows(*self.tensors))

    def resize(self) -> None:
        if self.module.weight is not None:
            self.resize_to(len(self.module.weight))

    def resize_to(self, channels: int) -> None:
        """Set the size of the norm, which one without a weight has nowhere else."""
        if isinstance(self.module, nn.GroupNorm):
            if parts_of(self.module) == channels_of(self.module):
                self.module.num_groups = channels
            self.module.num_channels = channels
        else:
            self.module.normalized_shape = (channels,)

    def ties(self) -> Iterator[list[tuple[str, int]]]:
        """Yield channels that have to go together, so that all parts of the norm keep one size."""
        size = channels_of(self.module)
        each = size // parts_of(self.module)  # 1 where each channel is a part, which may go alone
        for first in range(each if each > 1 else 0):
            yield [("output", channel) for channel in range(first, size, each)]

    def refusal(self) -> str:
        if not self.is_plain:
            return "its class has a forward of its own"
        shape = getattr(self.module, "normalized_shape", (1,))
        return "it normalizes over several dimensions" if len(shape) > 1 else ""


def channels_of(module: nn.Module) -> int:
    """Return over how many channels a norm is."""
    if isinstance(module, nn.GroupNorm):
        return module.num_channels
    assert isinstance(module, nn.LayerNorm | nn.RMSNorm)
    return module.normalized_shape[0]


def parts_of(module: nn.Module) -> int:
    """Return how many parts of the channels have a mean and variance of their own."""
    return module.num_groups if isinstance(module, nn.GroupNorm) else 1


def norm_over_open(module: nn.Module, x: Tensor, is_open: Tensor) -> Tensor:
    """Return what a norm computes of x, at least in float32, when only some channels count.

    Those have a 1 in `is_open`.
    """
    assert isinstance(module, nn.LayerNorm | nn.RMSNorm | nn.GroupNorm)
    parts = parts_of(module)
    shape = (1, parts, len(is_open) // parts, 1)
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    is_group = isinstance(module, nn.GroupNorm)
    wide = wide.reshape(len(x), *shape[1:3], -1) if is_group else wide.reshape(-1, *shape[1:])
    open_ = is_open.view(shape).to(wide.dtype)
    count = (open_.sum(2, keepdim=True) * wide.shape[-1]).clamp(min=1)

    def mean(values: Tensor) -> Tensor:
        return (values * open_).sum((2, 3), keepdim=True) / count

    eps = torch.finfo(x.dtype).eps if module.eps is None else module.eps
    centred = wide if isinstance(module, nn.RMSNorm) else wide - mean(wide)
    result = centred * torch.rsqrt(mean(centred**2) + eps)
    if module.weight is not None:
        result = result * module.weight.view(shape)
    bias = getattr(module, "bias", None)
    if bias is not None:
        result = result + bias.view(shape)
    return result.view(x.shape)
