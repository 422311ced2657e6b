"""Settings that all tests share."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what is prepared once out of the user's own cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str, str]]:
    """Run a command; return its exit code, its output and what it printed on the error stream."""
    from thinrnn.lab.cli import main

    def run(*arguments: Any) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return left.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three texts of a few hundred words that can be learned."""
    folder = tmp_path_factory.mktemp("texts")
    dice, word = random.Random(3), 0
    for name, lines in (("train", 120), ("valid", 20), ("test", 20)):
        text = ""
        for place in range(8 * lines):
            word = (word + dice.randint(1, 3)) % 30  # each word tells much about the next
            text += f"w{word}" + ("\n" if place % 8 == 7 else " ")
        (folder / f"{name}.txt").write_text(text)
    return folder
