"""The command line: `thinrnn COMMAND`, one file per command."""

import atexit
import os
import signal
import sys
import warnings
from typing import Any

NO_MEMORY = "not enough memory: try a smaller model, batch or text"


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit.

    The code is 0 for success, 2 for bad input and files that cannot be read or written, 130 for
    Ctrl-C, and 1 for the rest.
    """
    with warnings.catch_warnings():
        warnings.showwarning = _note
        # Ctrl-C while Python itself shuts down is late, and would be printed as an exception.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
        try:
            code, message = _run(arguments)
            _say(message)
        except KeyboardInterrupt:  # once more, on the way out
            code = 130
            _say("stopped")
        sys.exit(code)


def _note(message: Warning | str, *place: Any, **more: Any) -> None:
    """Print a warning, without the place in the code."""
    _say(str(message), "note")


def _say(message: str, what: str = "thinrnn") -> None:
    """Print one line to stderr; of several processes that train together, one prints it."""
    from thinrnn.lab.printable import printable

    line = printable(f"{what}: {' '.join(message.split())}")
    if not message:
        return
    if os.environ.get("WORLD_SIZE", "1") != "1":
        from thinrnn.lab.device.processes import says

        if not says(line):
            return
    print(line, file=sys.stderr)


def _run(arguments: list[str] | None) -> tuple[int, str]:
    """Run one command and return its exit code, and what to say if it failed."""
    from thinrnn.lab.cli.imports import patient_imports

    try:
        with patient_imports():
            from thinrnn.lab.cli.app import app

            code: int = app(arguments, prog_name="thinrnn", standalone_mode=False) or 0
        return code, "stopped" if code == 130 else ""  # typer makes a code of Ctrl-C
    except KeyboardInterrupt:
        return 130, "stopped"
    except MemoryError:
        return 2, NO_MEMORY
    except BrokenPipeError:  # as in `thinrnn list | head -1`
        sys.stderr.close()
        return 1, ""
    except Exception as error:
        return _failure(error)


def _failure(error: Exception) -> tuple[int, str]:
    """Return exit code and message of an error; one that nobody expects is raised again."""
    from thinrnn.errors import ThinRNNError
    from thinrnn.lab.cli.output import exit_code
    from thinrnn.lab.run.stop import ended_by_interrupt

    if isinstance(error, ThinRNNError):
        return exit_code(error), str(error)
    if ended_by_interrupt(error):
        return 130, "stopped"
    if isinstance(error, RuntimeError) and "allocate memory" in str(error):  # torch's
        return 2, NO_MEMORY
    if isinstance(error, OSError):  # such as a folder without permission
        where = f"{error.filename}: " if error.filename else ""
        return 2, f"{where}{error.strerror or error}"
    # Wrong options; the class is typer's own or click's, depending on typer's version.
    if not hasattr(error, "format_message"):
        raise error
    message = error.format_message()  # empty without a command: then the help was shown
    context = getattr(error, "ctx", None)
    program = context.command_path if context else "thinrnn"
    end = "" if message.endswith((".", "?")) else "."
    return 2, f"{message}{end} See '{program} --help'." if message else ""
