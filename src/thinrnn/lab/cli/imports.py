"""Ctrl-C waits while a package is imported.

Packages with code in C or C++ do not expect it: an interrupted `import torch` may abort the
process, and an interrupted `import numpy` ends in an error about something else.
"""

import builtins
import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def patient_imports() -> Iterator[None]:
    """Inside `with`, a Ctrl-C during an import is delivered when the import has ended."""
    real = builtins.__import__

    def patient(name: str, *more: Any, **named: Any) -> Any:
        is_main = threading.current_thread() is threading.main_thread()
        if name in sys.modules or not is_main:
            return real(name, *more, **named)
        came: list[Any] = []
        before = signal.signal(signal.SIGINT, lambda *signalled: came.append(signalled))
        try:
            return real(name, *more, **named)
        finally:
            signal.signal(signal.SIGINT, before)
            if came and callable(before):  # that of an import around this one, or Python's own
                before(*came[0])

    builtins.__import__ = patient
    try:
        yield
    finally:
        builtins.__import__ = real
