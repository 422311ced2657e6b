"""Test perplexity of recurrent highway networks against their width, like the paper's figure."""

from html import escape
from itertools import chain, pairwise

from thinrnn.report.scale import fit
from thinrnn.report.svg import axes, tag, text, tick_room
from thinrnn.results.read import Results
from thinrnn.results.rows import HIGHWAY, HIGHWAY_CURVE, Row

Points = list[tuple[float, float]]  # (width, test perplexity), from narrow to wide

WIDTH, HEIGHT = 820.0, 420.0
KEY = WIDTH - 200  # where the names of the lines begin, beside the plot
TOP = 40.0
PAPERS = {"ISS, its paper", "neuron selection, the paper", "dense, the paper"}
COLOURS = {
    "ours, 40 epochs": "#0969da",
    "ours, ISS": "#8250df",
    "the same widths from scratch": "#bf3989",
    "ours, 160 epochs": "#0550ae",
    "ours, plain": "#bc4c00",
    "ours, dense": "#1a7f37",
    "ISS, its paper": "#8c959f",
    "neuron selection, the paper": "#57606a",
    "dense, the paper": "#24292f",
}
STYLE = (
    "text{font:13px sans-serif;fill:#656d76}.grid{stroke:#d8dee4}.base{stroke:#8c959f}"
    "svg{background:#fff}"
)


def curves(results: Results) -> dict[str, Points]:
    """Return the points of each line, ours as far as they were run."""
    found: dict[str, Points] = {name: [] for name in COLOURS}
    for row in (*HIGHWAY, *HIGHWAY_CURVE):
        if row.paper is not None:
            is_curve, is_dense = row in HIGHWAY_CURVE, row.kind == "dense"
            whose = "dense, the paper" if is_dense else "neuron selection, the paper"
            if is_curve:
                whose = "ISS, its paper"
            if row.name != "ptb-rhn-iss":  # its row in the paper is a point of the ISS paper
                found[whose].append((float(row.paper.sizes), row.paper.mean("test")))
        ours = results.figures(row.name, row.kind)
        name = _line(row)
        if ours is not None and name is not None:
            found[name].append((float(ours.sizes), ours.mean("test")))
    return {name: sorted(set(points)) for name, points in found.items() if points}


def against_iss(results: Results) -> list[str]:
    """Return a line for each width at which ISS is better than ours, or that none is known yet.

    At every point of either within the widths that both reach; the other is taken from the
    straight lines between its own points.
    """
    lines = curves(results)
    if lines.keys() <= PAPERS:
        return []
    ours, iss = lines.get("ours, 40 epochs", []), lines.get("ours, ISS", [])
    widths = sorted({w for w, _ in ours + iss if _reach(ours, w) and _reach(iss, w)})
    if not widths:
        return ["- RHN, neuron selection beside ISS at the same widths: not run yet."]
    return [
        f"- RHN, a width of {w:.0f}: test {_at(w, ours) - _at(w, iss):.2f} worse than ISS."
        for w in widths
        if _at(w, ours) > _at(w, iss)
    ]


def _reach(points: Points, width: float) -> bool:
    return bool(points) and points[0][0] <= width <= points[-1][0]


def _at(width: float, points: Points) -> float:
    for (a, p), (b, q) in pairwise(points):
        if a <= width <= b:
            return p + (q - p) * (width - a) / (b - a)
    return points[0][1]  # a single point, of this width


def _line(row: Row) -> str | None:
    """Return the line that a row belongs to; controls of single points are in the table alone."""
    if row.name.startswith("ptb-rhn-iss"):
        return "ours, ISS"
    if row in HIGHWAY_CURVE:
        return "ours, 40 epochs" if row.kind == "small" else "the same widths from scratch"
    names = {
        ("ptb-rhn-dense", "dense"): "ours, dense",
        ("ptb-rhn-paper", "small"): "ours, 160 epochs",
        ("ptb-rhn-plain", "small"): "ours, plain",
    }
    return names.get((row.name, row.kind))


def width_curve(results: Results) -> str:
    """Return the figure as an SVG file, or an empty text while there is nothing of ours.

    Group lasso may be so much worse that its scale would hide all else: where it is, its points
    are hollow, at the upper edge, with their perplexity.
    """
    lines = curves(results)
    if lines.keys() <= PAPERS:
        return ""
    shown = [p for name, line in lines.items() for _, p in line if name != "ours, ISS"]
    y = fit(shown, HEIGHT - 46, TOP, air=0.08)
    x = fit([w for w, _ in chain.from_iterable(lines.values())], tick_room(y), KEY - 24, air=0.06)
    edge = tag("rect", x=x.start, y=TOP, width=x.end - x.start, height=HEIGHT - TOP)
    parts = [tag("clipPath", edge, id="plot")]
    parts.append(axes(x, y, x_title="neurons in the width", y_title="test perplexity"))
    for place, (name, line) in enumerate(lines.items()):
        colour = COLOURS[name]
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
        key = TOP + 8 + 20 * place
        parts.append(tag("circle", cx=KEY, cy=key - 4, r=4.5, fill=colour))
        parts.append(text(KEY + 12, key, name, "key"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" '
        f'width="{WIDTH:g}" height="{HEIGHT:g}"><style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
