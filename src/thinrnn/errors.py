"""What can go wrong, each kind with its own name; every message says what to do next."""


class ThinRNNError(Exception):
    """Base class of every error that thinrnn raises on purpose."""


class ExampleError(ThinRNNError, ValueError):
    """The model does not run on the example that was given."""


class NoRecurrentLayerError(ThinRNNError, ValueError):
    """The model has no recurrent layer that the example reaches."""


class PlanError(ThinRNNError, ValueError):
    """A plan does not fit the model, or names something that is not there."""


class LayerError(ThinRNNError, TypeError):
    """What is registered with `register_layer` is not a module class or not a `Layer`."""


class GateError(ThinRNNError, ValueError):
    """Gates are missing, are there already, or are not numbers."""


class TargetError(ThinRNNError, ValueError):
    """A size target cannot be met."""


class HardCodedSizeError(ThinRNNError, RuntimeError):
    """The model's own code relies on a size that pruning changes."""


class VerifyError(ThinRNNError, AssertionError):
    """The small model does not give the outputs of the gated one."""


class StateError(ThinRNNError, ValueError):
    """A recurrent state has the wrong number of tensors or the wrong shape."""


class FolderError(ThinRNNError, ValueError):
    """A saved model cannot be read, or belongs to another model."""


class ExportError(ThinRNNError, ValueError):
    """A model cannot be written as ONNX, or the file does not do what the model does."""


class MissingExtraError(ThinRNNError, ImportError):
    """An optional package is missing or too old; the message says how to install it."""


class RunError(ThinRNNError, ValueError):
    """A run folder is missing, incomplete or not a run folder."""
