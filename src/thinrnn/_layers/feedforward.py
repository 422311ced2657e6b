"""The layers that thinrnn can cut, and which class tells about which module."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from thinrnn._layers.base import Intake, Layer, argument
from thinrnn._layers.recurrent import GATES as GATES
from thinrnn._layers.recurrent import CellLayer, RNNLayer
from thinrnn._layers.rhn_layer import RHNLayer
from thinrnn.nn.rhn import RHN


class LinearLayer(Layer):
    module: nn.Linear

    def build(self) -> None:
        n, m = self.module.weight.shape
        self.add("input", m, ("weight", 1, (0,), "read"))
        self.add("output", n, ("weight", 0, (0,), "produce"), ("bias", 0, (0,), "produce"))

    def resize(self) -> None:
        self.module.out_features, self.module.in_features = self.module.weight.shape


class ConvLayer(Layer):
    """Convolutions: channels stand before the dimensions of space."""

    module: nn.Conv1d | nn.Conv2d | nn.Conv3d

    @property
    def depthwise(self) -> bool:
        return self.module.groups > 1

    def build(self) -> None:
        n, m = self.module.weight.shape[:2]
        self.axis = 1 - self.module.weight.dim()
        if not self.depthwise:
            self.add("input", m, ("weight", 1, (0,), "read"))
        self.add("output", n, ("weight", 0, (0,), "produce"), ("bias", 0, (0,), "produce"))

    def resize(self) -> None:
        module = self.module
        module.out_channels = module.weight.shape[0]
        if self.depthwise:
            module.groups = module.out_channels
        module.in_channels = module.weight.shape[1] * module.groups


class EmbeddingLayer(Layer):
    module: nn.Embedding

    def build(self) -> None:
        self.add("output", self.module.weight.shape[1], ("weight", 1, (0,), "produce"))

    def intakes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Intake]:
        return iter(())

    def choices(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
        yield argument(args, kwargs, 0, "input")

    def resize(self) -> None:
        self.module.embedding_dim = self.module.weight.shape[1]


class ChannelwiseLayer(Layer):
    """BatchNorm, InstanceNorm, PReLU: what goes in as channel j comes out as channel j."""

    def build(self) -> None:
        names = ("weight", "bias", "running_mean", "running_var")
        size = next(t.shape[0] for n in names if (t := getattr(self.module, n, None)) is not None)
        self.axis = -2 if isinstance(self.module, nn.InstanceNorm1d) else 1  # (C, T) has no batch
        self.add("output", size, *((n, 0, (0,), "produce") for n in names))

    def resize(self) -> None:
        kept = next(iter([*self.module.parameters(), *self.module.buffers()])).shape[0]
        which = "num_parameters" if isinstance(self.module, nn.PReLU) else "num_features"
        setattr(self.module, which, kept)


LAYERS: dict[type[nn.Module], type[Layer]] = {
    nn.Linear: LinearLayer,
    nn.Conv1d: ConvLayer,
    nn.Conv2d: ConvLayer,
    nn.Conv3d: ConvLayer,
    nn.Embedding: EmbeddingLayer,
    nn.BatchNorm1d: ChannelwiseLayer,
    nn.BatchNorm2d: ChannelwiseLayer,
    nn.BatchNorm3d: ChannelwiseLayer,
    nn.InstanceNorm1d: ChannelwiseLayer,
    nn.PReLU: ChannelwiseLayer,
    nn.LSTM: RNNLayer,
    nn.GRU: RNNLayer,
    nn.RNN: RNNLayer,
    nn.LSTMCell: CellLayer,
    nn.GRUCell: CellLayer,
    nn.RNNCell: CellLayer,
    RHN: RHNLayer,
}
RECURRENT = (RNNLayer, CellLayer, RHNLayer)


def layer_of(name: str, module: nn.Module) -> Layer | None:
    """Return how to cut a module, or None where it is not one of the known layers."""
    base = next((base for base in LAYERS if isinstance(module, base)), None)
    if base is None or refusal_of(module):
        return None
    layer = LAYERS[base](name, module)
    layer.base = base
    return layer


def refusal_of(module: nn.Module) -> str:
    """Return why a module of a known type cannot be cut after all, or an empty text."""
    if nn.utils.parametrize.is_parametrized(module):
        return "its weights are parametrized; remove the parametrization first"
    if any(name.endswith(("_g", "_v")) for name in module._parameters):
        return "it uses weight normalisation; remove it first (torch.nn.utils.remove_weight_norm)"
    lost = [name for name in _own_weights(module) if module._parameters.get(name) is None]
    if lost:
        return f"its {lost[0]} is no parameter of its own: something else computes it"
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        return "max_norm rescales whole rows, which mixes the neurons"
    if isinstance(module, nn.PReLU) and module.num_parameters == 1:
        return "one slope serves all neurons"
    norms = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)
    if isinstance(module, norms) and module.weight is None and module.running_mean is None:
        return "it has no tensor per channel"
    grouped = isinstance(module, nn.modules.conv._ConvNd) and module.groups > 1
    if grouped and not module.groups == module.in_channels == module.out_channels:
        return "grouped convolutions other than depthwise ones tie whole blocks of channels"
    return ""


def _own_weights(module: nn.Module) -> list[str]:
    """Return the matrices that a module of a known type has by itself."""
    if isinstance(module, nn.RNNBase):
        return [name for name in module._flat_weights_names if name.startswith("weight")]
    if isinstance(module, nn.RNNCellBase):
        return ["weight_ih", "weight_hh"]
    if isinstance(module, RHN):
        return ["weight_ih", *(f"weight_hh_d{d}" for d in range(module.depth))]
    if isinstance(module, (nn.Linear, nn.Embedding, nn.modules.conv._ConvNd)):
        return ["weight"]
    return []
