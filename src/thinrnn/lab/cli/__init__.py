"""The command line: `thinrnn COMMAND`, one small file per command."""

import sys


def main(arguments: list[str] | None = None) -> None:
    """Run one command and leave with its exit code: 0 only if what it promised holds.

    2 is for bad input, 130 for Ctrl-C, 1 for everything else that went wrong.
    """
    from thinrnn.errors import ThinRNNError
    from thinrnn.lab.cli.app import app
    from thinrnn.lab.cli.output import exit_code

    try:
        code = app(arguments, prog_name="thinrnn", standalone_mode=False) or 0
    except ThinRNNError as error:
        code = fail(str(error), exit_code(error))
    except KeyboardInterrupt:
        code = fail("stopped", 130)
    except BrokenPipeError:  # whoever read our output has seen enough
        sys.stderr.close()
        code = 1
    except Exception as error:
        # Wrong options; the class is typer's own or click's, depending on typer's version.
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message()  # empty where no command was given: the help was shown
        code = fail(f"{message} (thinrnn --help shows how)", 2) if message else 2
    sys.exit(code)


def fail(message: str, code: int) -> int:
    """Say in one line what is wrong."""
    print(f"thinrnn: {' '.join(message.split())}", file=sys.stderr)
    return code
