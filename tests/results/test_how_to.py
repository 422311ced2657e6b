"""The page about the paper names presets that exist, all of them."""

import re
from pathlib import Path

from thinrnn import recipes

PAGE = Path(__file__).parent.parent.parent / "docs/how-to/reproduce-the-paper.md"


def test_every_preset_for_the_penn_treebank_is_on_the_page():
    text = PAGE.read_text().replace("`ptb-ablation-1` to `-5`", "")
    named = set(re.findall(r"ptb-[a-z-]+", text))
    known = {name for name in recipes.presets() if name.startswith("ptb-")}
    assert named == {name for name in known if "ablation" not in name}
    assert {f"ptb-ablation-{k}" for k in range(1, 6)} <= known
