"""The run folder: what an experiment writes down, so that it can be watched, resumed and read."""

from thinrnn.lab.run.errors import DivergedError, InputError, InterruptedRunError, StorageError
from thinrnn.lab.run.folder import RunFolder

__all__ = ["DivergedError", "InputError", "InterruptedRunError", "RunFolder", "StorageError"]
