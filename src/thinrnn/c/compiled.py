"""C files compiled and called, to check and to time them."""

import ctypes
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy

from thinrnn.errors import ExportError, MissingExtraError

Array = numpy.ndarray[Any, Any]
STRICT = ("-std=c99", "-Wall", "-Werror", "-pedantic")


def compiler() -> list[str]:
    """Return the command of the C compiler: that of the variable CC, or cc.

    Raises:
        MissingExtraError: There is none.
    """
    command = shlex.split(os.environ.get("CC", "cc"))
    if not command or shutil.which(command[0]) is None:
        raise MissingExtraError(
            f"there is no C compiler '{' '.join(command)}', which has to check the file: install "
            "gcc or clang, or name yours in the environment variable CC."
        )
    return command


def compile_shared(source: Path, library: Path, *options: str) -> None:
    """Compile a C file into a shared library."""
    # The file may still have a temporary name.
    command = [*compiler(), *STRICT, *options, "-shared", "-fPIC", "-x", "c", str(source)]
    done = subprocess.run(
        [*command, "-o", str(library), "-lm"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ExportError(f"the C compiler refuses the file: {' '.join(done.stderr.split())[:300]}")


class Functions:
    """The two functions of a shared library; they take pointers to arrays."""

    def __init__(self, library: Path, name: str) -> None:
        loaded = ctypes.CDLL(str(library))
        self.reset, self.step = loaded[f"{name}_reset"], loaded[f"{name}_step"]


def pointer(array: Array) -> ctypes.c_void_p:
    """Return where the values of a contiguous array begin; the array has to outlive it."""
    return ctypes.c_void_p(array.ctypes.data)
