"""Test perplexity of recurrent highway networks against their width, like the paper's figure."""

from html import escape
from itertools import chain

from thinrnn.lab.report.scale import fit
from thinrnn.lab.report.svg import axes, tag, text, tick_room
from tools.results.read import Results
from tools.results.rows import ISS, OURS, PAPER_ISS, PAPER_SELECTION
from tools.results.widths import PAPERS, has_ours, lines

WIDTH, HEIGHT = 850.0, 420.0
KEY = WIDTH - 230  # where the names of the lines begin, beside the plot
TOP = 40.0
COLOURS = {  # in the order of the key
    OURS: "#0969da",
    "from scratch, taught, 40 epochs": "#bf3989",
    ISS: "#8250df",
    "ours, taught, 160 epochs": "#0a3069",
    "from scratch, taught, 160 epochs": "#99286e",
    "ours, plain, 100 epochs": "#bc4c00",
    "from scratch, plain, 100 epochs": "#e3b341",
    "ours, dense, 120 epochs": "#1a7f37",
    PAPER_ISS: "#8c959f",
    PAPER_SELECTION: "#57606a",
    "dense, the paper": "#24292f",
}
STYLE = (
    "text{font:13px sans-serif;fill:#656d76}.grid{stroke:#d8dee4}.base{stroke:#8c959f}"
    "svg{background:#fff}"
)


def width_curve(results: Results) -> str:
    """Return the figure as an SVG file, or an empty text while there is nothing of ours.

    Group lasso may be so much worse that its scale would hide all else: where it is, its points
    are hollow, at the upper edge, with their perplexity.
    """
    if not has_ours(results):
        return ""
    found = lines(results)
    shown = [p for name, line in found.items() for _, p in line if name != ISS]
    y = fit(shown, HEIGHT - 46, TOP, air=0.08)
    x = fit([w for w, _ in chain.from_iterable(found.values())], tick_room(y), KEY - 24, air=0.06)
    edge = tag("rect", x=x.start, y=TOP, width=x.end - x.start, height=HEIGHT - TOP)
    parts = [tag("clipPath", edge, id="plot")]
    parts.append(axes(x, y, x_title="neurons in the width", y_title="test perplexity"))
    names = [name for name in COLOURS if name in found]
    for name in sorted(names, key=lambda name: name not in PAPERS):  # those of ours on top
        colour, line = COLOURS[name], found[name]
        at = [(x(w), y(p)) for w, p in line]
        d = "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in at)
        dashes = {"stroke_dasharray": "5 4"} if name in PAPERS else {}
        look = {"fill": "none", "stroke": colour, "stroke_width": 2, "clip_path": "url(#plot)"}
        parts.append(tag("path", d=d, **look, **dashes))
        for (px, py), (width, perplexity) in zip(at, line, strict=True):
            title = tag("title", escape(f"{name}: {perplexity:.2f} at {width:.0f}"))
            look = {"fill": colour}
            if py < TOP:
                look = {"fill": "#fff", "stroke": colour, "stroke_width": 2}
                parts.append(text(px + 9, TOP + 4, f"{perplexity:.1f} ↑", "key"))
            parts.append(tag("circle", title, cx=px, cy=max(py, TOP), r=4.5, **look))
        key = TOP + 8 + 20 * names.index(name)
        parts.append(tag("circle", cx=KEY, cy=key - 4, r=4.5, fill=colour))
        parts.append(text(KEY + 12, key, name, "key"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" '
        f'width="{WIDTH:g}" height="{HEIGHT:g}"><style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
