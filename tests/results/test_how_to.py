"""The page about the paper names presets that exist, all of them."""

import re
from pathlib import Path

from thinrnn.lab import recipes

PAGE = Path(__file__).parent.parent.parent / "docs/how-to/reproduce-the-paper.md"


def test_every_preset_for_the_penn_treebank_is_on_the_page():
    text = PAGE.read_text()
    series = re.findall(r"`(ptb-[a-z-]+)-1` to `-(\d)`", text)
    numbered = {f"{name}-{k}" for name, last in series for k in range(1, int(last) + 1)}
    named = set(re.findall(r"`(ptb-[a-z-]+)`", text))
    assert named | numbered == {name for name in recipes.presets() if name.startswith("ptb-")}
