"""The optional packages: which are missing, and how to install them."""

import importlib.util

from thinrnn.errors import MissingExtraError

# The one place that has the command to install an extra; thinrnn is on no package index.
INSTALL = "in a checkout of thinrnn, run pip install '.[{extra}]'"


def how_to_install(extra: str) -> str:
    """Return the instruction that installs an extra.

    >>> how_to_install("onnx")
    "in a checkout of thinrnn, run pip install '.[onnx]'"
    """
    return INSTALL.format(extra=extra)


def missing(*modules: str) -> list[str]:
    """Return the modules that are not installed; none of them is imported."""
    return [name for name in modules if importlib.util.find_spec(name) is None]


def require(extra: str, *modules: str) -> None:
    """Check that optional packages are installed.

    Args:
        extra: The extra that installs them, as in pyproject.toml: "onnx", "report", "data",
            "recipes", "integrations", "sweep".
        *modules: Their names as Python imports them.

    Raises:
        MissingExtraError: A module is not installed. The message says how to install the extra.

    >>> require("onnx", "json")
    """
    if absent := missing(*modules):
        verb = "is" if len(absent) == 1 else "are"
        raise MissingExtraError(
            f"{' and '.join(absent)} {verb} not installed: {how_to_install(extra)}"
        )
