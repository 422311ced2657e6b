"""The command line: `thinrnn COMMAND`, one file per command."""

import sys


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit: 0 for success, 2 for bad input, 130 for Ctrl-C, 1 for the rest."""
    from thinrnn.errors import ThinRNNError
    from thinrnn.lab.cli.app import app
    from thinrnn.lab.cli.output import exit_code

    try:
        code = app(arguments, prog_name="thinrnn", standalone_mode=False) or 0
    except ThinRNNError as error:
        code = fail(str(error), exit_code(error))
    except KeyboardInterrupt:
        code = fail("stopped", 130)
    except BrokenPipeError:  # as in `thinrnn list | head -1`
        sys.stderr.close()
        code = 1
    except Exception as error:
        # Wrong options; the class is typer's own or click's, depending on typer's version.
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message()  # empty without a command: then the help was shown
        context = getattr(error, "ctx", None)
        program = context.command_path if context else "thinrnn"
        code = fail(f"{message.rstrip('.')}. See '{program} --help'.", 2) if message else 2
    sys.exit(code)


def fail(message: str, code: int) -> int:
    """Print an error in one line and return its exit code."""
    print(f"thinrnn: {' '.join(message.split())}", file=sys.stderr)
    return code
