"""The command line: `thinrnn COMMAND`, one file per command."""

import sys
import warnings
from typing import Any


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit.

    The code is 0 for success, 2 for bad input and files that cannot be read or written, 130 for
    Ctrl-C, and 1 for the rest.
    """
    with warnings.catch_warnings():
        warnings.showwarning = _note
        sys.exit(_run(arguments))


def _note(message: Warning | str, *place: Any, **more: Any) -> None:
    """Print a warning in one line, without the place in the code."""
    print(f"note: {_one_line(str(message))}", file=sys.stderr)


def _run(arguments: list[str] | None) -> int:
    """Run one command and return its exit code."""
    from thinrnn.errors import ThinRNNError
    from thinrnn.lab.cli.app import app
    from thinrnn.lab.cli.output import exit_code

    try:
        return app(arguments, prog_name="thinrnn", standalone_mode=False) or 0
    except ThinRNNError as error:
        return _fail(str(error), exit_code(error))
    except KeyboardInterrupt:
        return _fail("stopped", 130)
    except MemoryError:
        return _fail("not enough memory: try a smaller model, batch or text", 2)
    except BrokenPipeError:  # as in `thinrnn list | head -1`
        sys.stderr.close()
        return 1
    except OSError as error:  # one that no command expects, such as a folder without permission
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}", 2)
    except Exception as error:
        # Wrong options; the class is typer's own or click's, depending on typer's version.
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message()  # empty without a command: then the help was shown
        context = getattr(error, "ctx", None)
        program = context.command_path if context else "thinrnn"
        return _fail(f"{message.rstrip('.')}. See '{program} --help'.", 2) if message else 2


def _fail(message: str, code: int) -> int:
    """Print an error in one line and return its exit code."""
    print(f"thinrnn: {_one_line(message)}", file=sys.stderr)
    return code


def _one_line(message: str) -> str:
    from thinrnn.lab.printable import printable

    return printable(" ".join(message.split()))
