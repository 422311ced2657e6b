"""What can go wrong in a run; the message is the one line that the user sees."""

from thinrnn.errors import ThinRNNError


class InputError(ThinRNNError, ValueError):
    """A file, setting or option that the user gave cannot be used."""


class StorageError(ThinRNNError, OSError):
    """The run folder cannot be written; what was there before is still there."""


class DivergedError(ThinRNNError, ArithmeticError):
    """The loss or the weights are no longer numbers."""


class LostProcessError(ThinRNNError):
    """One of the processes that train together has ended."""


class InterruptedRunError(ThinRNNError):
    """The run was stopped by a signal, after writing a checkpoint."""
