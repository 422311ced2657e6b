"""Versions and machine of a run, so that it can be repeated."""

import os
import platform
import shlex
import sys
from typing import Any

from thinrnn import __version__
from thinrnn.timing import processor


def environment(device: str = "cpu") -> dict[str, Any]:
    """Return versions, machine and threads as JSON values."""
    import numpy
    import torch

    found: dict[str, Any] = {
        "thinrnn": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": device,
    }
    if device.startswith("cuda"):
        found["gpu"] = torch.cuda.get_device_name()
        found["cuda"] = torch.version.cuda
        cudnn: Any = torch.backends.cudnn  # without types
        found["cudnn"] = cudnn.version()
    return found


def command_line() -> str:
    """Return the command that started this process, as a user would type it."""
    return shlex.join(["thinrnn", *sys.argv[1:]])
