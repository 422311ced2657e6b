"""python -m tools.results [ROOT]: write RESULTS.md and the README's table again."""

import sys
from pathlib import Path

from tools.results.page import write_pages

if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    changed = write_pages(root)
    print(f"wrote {', '.join(map(str, changed))}" if changed else "all pages are up to date")
