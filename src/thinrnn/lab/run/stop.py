"""Ctrl-C and SIGTERM as a polite request: the loop ends its step, writes a checkpoint and stops.

The signal handler sets a flag and nothing else. What has to be said at once is said by a thread,
which Python wakes at every signal: the main thread may be writing a checkpoint.
"""

import contextlib
import os
import signal
import socket
import threading
from types import FrameType

from thinrnn.lab.run.progress import Progress

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GIVEN_UP = 130  # exit code, as for any program that Ctrl-C ends


class StopRequest:
    """Inside `with`, `requested` becomes true on the first signal.

    The second one is answered with a line. The third ends the process as a kill does: what is on
    the disk stays whole, but the steps since the last checkpoint are lost.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.requested = False
        self.undo = contextlib.ExitStack()

    def __enter__(self) -> "StopRequest":
        # Only the main thread may set handlers; elsewhere the signals mean what they always do.
        if threading.current_thread() is threading.main_thread():
            ear, mouth = socket.socketpair()
            mouth.setblocking(False)
            listener = threading.Thread(target=self._listen, args=(ear,), daemon=True)
            listener.start()
            before = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
            self.undo.callback(listener.join)
            self.undo.callback(mouth.close)  # which ends the listener
            self.undo.callback(signal.set_wakeup_fd, before)
            for number in SIGNALS:
                self.undo.callback(signal.signal, number, signal.signal(number, self._on_signal))
        return self

    def __exit__(self, *exception: object) -> None:
        self.undo.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.requested = True

    def _listen(self, ear: socket.socket) -> None:
        """Read the number of every signal, and answer all but the first."""
        count = 0
        with ear:
            while heard := ear.recv(1):
                count += heard[0] in SIGNALS
                if heard[0] in SIGNALS and count == 2:
                    self._say("stopping, again to give up")
                elif count == 3:
                    self._say("gave up: the steps since the last checkpoint are lost")
                    self.progress.end()
                    os._exit(GIVEN_UP)

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads the output any more
            self.progress.line(line)


def ended_by_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error; an import that it breaks off may end in any other one."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False
