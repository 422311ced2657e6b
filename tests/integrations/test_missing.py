"""Without its trainer, an integration says in one line what to install."""

import importlib
import importlib.util
import sys

import pytest

from thinrnn.errors import MissingExtraError


@pytest.mark.parametrize(
    ("name", "packages"),
    [
        ("lightning", ("lightning", "pytorch_lightning")),
        ("transformers", ("transformers",)),
        ("transformers", ("accelerate",)),
    ],
)
def test_the_line_to_run(
    name: str, packages: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in packages else find(name)
    )
    module = f"thinrnn.integrations.{name}"
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(MissingExtraError) as refused:
        importlib.import_module(module)
    assert "pip install '.[integrations]'" in str(refused.value)
    assert packages[-1] in str(refused.value) and "\n" not in str(refused.value)
