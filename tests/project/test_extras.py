"""Missing optional packages are named, with the way to install them."""

import pytest

from thinrnn._extras import require
from thinrnn.errors import MissingExtraError


def test_missing_modules_are_named_with_their_extra() -> None:
    with pytest.raises(MissingExtraError, match=r"no_a and no_b are .*'\.\[report\]'"):
        require("report", "json", "no_a", "no_b")


def test_installed_modules_pass() -> None:
    require("report", "json")
