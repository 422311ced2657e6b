"""The errors that thinrnn raises on purpose; every message says what to do next."""


class ThinRNNError(Exception):
    """Base class of every error that thinrnn raises on purpose: catch this one to catch all.

    Example:
        >>> try:
        ...     thinrnn.compact(torch.nn.LSTM(3, 4))
        ... except thinrnn.ThinRNNError as error:
        ...     print(type(error).__name__)
        GateError
    """


class ExampleError(ThinRNNError, ValueError):
    """The model does not run on the given example, or not repeatably."""


class NoRecurrentLayerError(ThinRNNError, ValueError):
    """The example reaches no recurrent layer of the model."""


class PlanError(ThinRNNError, ValueError):
    """A plan does not fit the model, or a name is not in the plan."""


class LayerError(ThinRNNError, TypeError):
    """What is registered with `register_layer` is not a module class or not a `Layer`."""


class GateError(ThinRNNError, ValueError):
    """The model has no gates, has gates already, or a gate is not a number."""


class TargetError(ThinRNNError, ValueError):
    """The size of a `Target` cannot be reached."""


class HardCodedSizeError(ThinRNNError, RuntimeError):
    """The model's own code relies on a size that pruning changes."""


class VerifyError(ThinRNNError, AssertionError):
    """The small model does not compute the outputs of the gated one."""


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


class CalibrationError(ThinRNNError, ValueError):
    """The calibration data is missing, or the model does not run on it."""
