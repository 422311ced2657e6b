"""Settings that all tests share."""

import os
import shutil

import pytest
import torch
from hypothesis import HealthCheck, settings

# Parallel workers share the cores; more threads each would only make them wait for one another.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # for the programs that tests start
    torch.set_num_threads(1)

# The first call of torch in a process is slow, so hypothesis must not judge by time.
settings.register_profile(
    "dev", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "ci", settings.get_profile("dev"), max_examples=200, derandomize=True, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    if item.get_closest_marker("browser") and not any(map(shutil.which, BROWSERS)):
        pytest.skip("needs a Chromium browser")
