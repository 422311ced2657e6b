"""One call of a gated model at a time: all threads share the layers whose weights are gated.

A lock held during a call could not be copied or pickled with the model, would outlive a call that
Ctrl-C broke off, and would stay locked in a forked process. So a turn is a thread's number.
"""

import os
import sys
import threading
import time
from types import FrameType
from typing import Any

from torch import nn

from thinrnn.errors import GateError

PATIENCE = 60.0  # seconds that a call waits for that of another thread
_LOCK = threading.Lock()  # held for a few instructions, never during a call
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LOCK._at_fork_reinit)  # type: ignore[attr-defined]


class Turn:
    """Which thread is inside a gated model, and the call that it came in with."""

    def __init__(self) -> None:
        self._thread = 0
        self._module: nn.Module | None = None

    def __reduce__(self) -> Any:
        return Turn, ()  # nobody is inside a copy

    @property
    def is_mine(self) -> bool:
        """Whether this thread is inside."""
        return self._module is not None and self._thread == threading.get_ident()

    def begin(self, module: nn.Module) -> bool:
        """Wait until no other thread is inside; return whether its call was broken off.

        Raises:
            GateError: Another thread has been inside for a minute.
        """
        if self.is_mine:
            return False
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with _LOCK:
                was_left = self._module is not None and not self._is_inside()
                if self._module is None or was_left:
                    self._thread, self._module = threading.get_ident(), module
                    return was_left
            time.sleep(1e-4)
        raise GateError(
            f"another thread has been inside this {type(module).__name__} for {PATIENCE:.0f} s, "
            "and calls of a gated model take turns. If its forward starts threads that call "
            "layers, call these layers in the same thread, or compact the model first."
        )

    def end(self, module: nn.Module) -> None:
        """End the turn, if it began with a call of this module."""
        if self._module is module:
            self._module = None

    def _is_inside(self) -> bool:
        frame = sys._current_frames().get(self._thread)
        return calls_on_stack(frame, self._module) > 0


def calls_on_stack(frame: FrameType | None, module: nn.Module | None) -> int:
    """Return how many calls of the module a thread's stack holds, from this frame up."""
    calls = 0
    while frame is not None:
        is_call = frame.f_code is nn.Module._call_impl.__code__
        calls += is_call and frame.f_locals.get("self") is module
        frame = frame.f_back
    return calls
