"""Which layer class describes which kind of module; users can add their own."""

from collections.abc import Callable
from typing import TypeVar

from torch import nn

from thinrnn._layers.base import Layer
from thinrnn._layers.computed import computed_weights
from thinrnn._layers.feedforward import (
    ChannelwiseLayer,
    ConvLayer,
    ConvTransposeLayer,
    EmbeddingLayer,
    LinearLayer,
    PReLULayer,
)
from thinrnn._layers.norms import NormLayer
from thinrnn._layers.recurrent import CellLayer, RHNLayer, RNNLayer
from thinrnn.errors import LayerError
from thinrnn.nn.rhn import RHN
from thinrnn.nn.rnn_cell import ProjectedLSTM

LayerClass = TypeVar("LayerClass", bound=type[Layer])

LAYERS: dict[type[nn.Module], type[Layer]] = {
    nn.Linear: LinearLayer,
    nn.Conv1d: ConvLayer,
    nn.Conv2d: ConvLayer,
    nn.Conv3d: ConvLayer,
    nn.ConvTranspose1d: ConvTransposeLayer,
    nn.ConvTranspose2d: ConvTransposeLayer,
    nn.ConvTranspose3d: ConvTransposeLayer,
    nn.Embedding: EmbeddingLayer,
    nn.BatchNorm1d: ChannelwiseLayer,
    nn.BatchNorm2d: ChannelwiseLayer,
    nn.BatchNorm3d: ChannelwiseLayer,
    nn.InstanceNorm1d: ChannelwiseLayer,
    nn.LayerNorm: NormLayer,
    nn.RMSNorm: NormLayer,
    nn.GroupNorm: NormLayer,
    nn.PReLU: PReLULayer,
    nn.LSTM: RNNLayer,
    nn.GRU: RNNLayer,
    nn.RNN: RNNLayer,
    ProjectedLSTM: RNNLayer,
    nn.LSTMCell: CellLayer,
    nn.GRUCell: CellLayer,
    nn.RNNCell: CellLayer,
    RHN: RHNLayer,
}


def register_layer(kind: type[nn.Module]) -> Callable[[LayerClass], LayerClass]:
    """Register how modules of a class are pruned, for classes that thinrnn does not know.

    Use it as a decorator on a subclass of `Layer`, or call it: `register_layer(MyCell)(MyLayer)`.
    It also holds for subclasses of `kind`; the most specific class wins, so a class derived from
    `nn.Linear` can have its own layer.

    Args:
        kind: the class of the modules, a subclass of `nn.Module`.

    Returns:
        A decorator that takes a subclass of `Layer` and returns it unchanged.

    Raises:
        LayerError: if `kind` is not a module class, or what is registered is not a `Layer` class.

    >>> class Scale(nn.Module):
    ...     def __init__(self, channels):
    ...         super().__init__()
    ...         self.weight = nn.Parameter(torch.ones(channels))
    ...     def forward(self, input):
    ...         return input * self.weight
    >>> @register_layer(Scale)
    ... class ScaleLayer(Layer):
    ...     multiplies = False
    ...     def build(self):
    ...         self.add("output", len(self.module.weight), *self.rows("weight"))
    ...     def resize(self):
    ...         pass  # the module has no size attribute
    >>> model = nn.Sequential(nn.Linear(3, 4), Scale(4), nn.RNNCell(4, 5))
    >>> print([group.name for group in find_groups(model, torch.zeros(2, 3))])
    ['input', '0+1']
    """
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise LayerError(f"register_layer({kind!r}): give a module class, as in nn.Linear.")

    def register(layer: LayerClass) -> LayerClass:
        if not (isinstance(layer, type) and issubclass(layer, Layer)):
            raise LayerError(
                f"register_layer({kind.__name__}) got {layer!r}: give a subclass of thinrnn.Layer."
            )
        LAYERS[kind] = layer
        return layer

    return register


def layer_of(name: str, module: nn.Module, model: nn.Module) -> Layer | None:
    """Return the layer of a model's module, or None where it is unknown or cannot be cut."""
    layer = _unbuilt(name, module, model)
    if layer is None or _why_not(layer):
        return None
    layer.build()
    return layer


def layers_of(model: nn.Module) -> dict[str, Layer]:
    """Return the layers of a model, by the names of their modules."""
    found = ((name, layer_of(name, module, model)) for name, module in model.named_modules())
    return {name: layer for name, layer in found if layer is not None}


def refusal_of(name: str, module: nn.Module, model: nn.Module) -> str:
    """Return why a recurrent module of a known class cannot be cut, or an empty text."""
    layer = _unbuilt(name, module, model)
    return _why_not(layer) if layer is not None and layer.is_recurrent else ""


def is_recurrent(module: nn.Module) -> bool:
    """Whether a module is of a known class of layers with states."""
    layer = _unbuilt("", module, module)
    return layer is not None and layer.is_recurrent


def _unbuilt(name: str, module: nn.Module, model: nn.Module) -> Layer | None:
    kind = next((kind for kind in type(module).__mro__ if kind in LAYERS), None)
    if kind is None:
        return None
    layer = LAYERS[kind](name, module)
    layer.base = kind
    parent = model.get_submodule(name.rpartition(".")[0]) if name else None
    layer.computed = computed_weights(name, module, parent)
    return layer


def _why_not(layer: Layer) -> str:
    module = layer.module
    hooks = [type(hook).__name__ for hook in module._forward_pre_hooks.values()]
    others = set(getattr(module, "parametrizations", ())) - set(layer.computed)
    kinds = {type(p).__name__ for own in others for p in module.parametrizations[own]}
    if "SpectralNorm" in hooks or "_SpectralNorm" in kinds:
        return (
            "spectral norm divides its weight by a number that every neuron has a part in; fold it "
            "into the weight first (remove_spectral_norm or parametrize.remove_parametrizations)"
        )
    if others:
        return "its weights are parametrized; remove the parametrization first"
    missing = (name for name in layer.matrices if module._parameters.get(name) is None)
    lost = [name for name in missing if name not in layer.computed]
    if lost:
        return f"its {lost[0]} is not a parameter of its own: something else computes it"
    return layer.refusal()
