"""Ctrl-C during an import waits for its end."""

import builtins
import signal
import sys

import pytest

from thinrnn.lab.cli.imports import patient_imports

PACKAGE = """
import signal
signal.raise_signal(signal.SIGINT)
done = True
"""


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """`outer` imports `inner`, which is interrupted."""
    (tmp_path / "inner_package.py").write_text(PACKAGE)
    (tmp_path / "outer_package.py").write_text("import inner_package\ndone = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("inner_package", "outer_package"):
        sys.modules.pop(name, None)


@pytest.fixture(autouse=True)
def ctrl_c():
    """Python's own handler, also where a shell has started the tests with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", ["inner_package", "outer_package"])
def test_ctrl_c_waits_until_a_package_is_imported(packages, name):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), patient_imports():
        builtins.__import__(name)
    assert sys.modules[name].done
    assert signal.getsignal(signal.SIGINT) is before


def test_without_it_ctrl_c_breaks_the_import_off(packages):
    with pytest.raises(KeyboardInterrupt):
        builtins.__import__("outer_package")
    assert "outer_package" not in sys.modules
