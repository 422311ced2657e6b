"""Makes docs/images/report.png, the README's picture of a report, from a published run.

    python -m tools.report_picture [results/demo.json]

The picture shows the page from its title to the end of its training curves. Chromium draws it.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.image import imread, imsave

from thinrnn.lab.report import write_report

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "report.png"
WIDTH, HEIGHT, MARGIN = 1000, 2400, 40
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--force-device-scale-factor=1"),
)


def run_folder(published: dict[str, Any], folder: Path) -> Path:
    """Write the run folder that a file of results/ was made from, as far as the file tells."""
    folder.mkdir()
    models = published["models"]
    config = {key: value for key, value in published.items() if key not in ("models", "curves")}
    (folder / "config.json").write_text(json.dumps(config))
    for kind, summary in models.items():
        (folder / f"{kind}.json").write_text(json.dumps(summary))
    events = []
    for phase, curve in published["curves"].items():
        kept = curve.pop("kept")
        del curve["params"]  # the curve of the neurons shows the same, and the picture stays short
        for i, values in enumerate(zip(*curve.values(), strict=True)):
            event = dict(zip(curve, values, strict=True)) | {"event": "epoch", "phase": phase}
            if kept:
                event["kept"] = {group: neurons[i] for group, neurons in kept.items()}
                event["sizes"] = models["dense"]["neurons"]
            events.append(json.dumps(event) + "\n")
    (folder / "metrics.jsonl").write_text("".join(events))
    return folder


def draw(page: Path, picture: Path) -> None:
    """Take a picture of a page, without the empty rows at its end."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        sys.exit("report_picture: install chromium first")
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                browser,
                *FLAGS,
                f"--user-data-dir={profile}",
                f"--window-size={WIDTH},{HEIGHT}",
                f"--screenshot={picture}",
                page.resolve().as_uri(),
            ],
            check=True,
            capture_output=True,
        )
    pixels = np.asarray(imread(picture))
    drawn = np.flatnonzero((pixels != pixels[-1, -1]).any(axis=(1, 2)))
    imsave(picture, pixels[: drawn[-1] + MARGIN], metadata={"Software": "thinrnn"})


def main() -> None:
    """Make the picture."""
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "results" / "demo.json"
    published = json.loads(source.read_bytes())
    with tempfile.TemporaryDirectory() as work:
        page = write_report([run_folder(published, Path(work) / published["name"])])
        text = page.read_text(encoding="utf-8")
        end = text.index("</section>", text.index('<section id="training">')) + len("</section>")
        page.write_text(text[:end] + "</main></body></html>", encoding="utf-8")
        draw(page, PICTURE)
    print(f"wrote {PICTURE}")


if __name__ == "__main__":
    main()
