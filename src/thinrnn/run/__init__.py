"""The run folder: what an experiment writes down, so that it can be watched, resumed and read."""

from thinrnn.run.errors import DivergedError, InputError, InterruptedRunError, StorageError
from thinrnn.run.folder import RunFolder

__all__ = ["DivergedError", "InputError", "InterruptedRunError", "RunFolder", "StorageError"]
