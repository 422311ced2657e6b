"""Test perplexity of recurrent highway networks against their width, like the paper's figure."""

from html import escape
from itertools import chain, pairwise

from thinrnn.report.scale import fit
from thinrnn.report.svg import axes, tag, text, tick_room
from thinrnn.results.read import Results
from thinrnn.results.rows import HIGHWAY, HIGHWAY_CURVE, Row

Points = list[tuple[float, float]]  # (width, test perplexity), from narrow to wide

WIDTH, HEIGHT = 850.0, 420.0
KEY = WIDTH - 230  # where the names of the lines begin, beside the plot
TOP = 40.0
PAPERS = {"ISS, its paper", "neuron selection, the paper", "dense, the paper"}
OURS, ISS = "ours, taught, 40 epochs", "our ISS, taught, 40 epochs"
COLOURS = {
    OURS: "#0969da",
    "from scratch, taught, 40 epochs": "#bf3989",
    ISS: "#8250df",
    "ours, taught, 160 epochs": "#0a3069",
    "from scratch, taught, 160 epochs": "#99286e",
    "ours, plain, 100 epochs": "#bc4c00",
    "from scratch, plain, 100 epochs": "#e3b341",
    "ours, dense, 120 epochs": "#1a7f37",
    "ISS, its paper": "#8c959f",
    "neuron selection, the paper": "#57606a",
    "dense, the paper": "#24292f",
}
STYLE = (
    "text{font:13px sans-serif;fill:#656d76}.grid{stroke:#d8dee4}.base{stroke:#8c959f}"
    "svg{background:#fff}"
)


def curves(results: Results) -> dict[str, Points]:
    """Return the points of each line, ours as far as they were run; of one width, the best."""
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
        if ours is not None:
            found[_line(row)].append((float(ours.sizes), ours.mean("test")))
    return {name: _best(points) for name, points in found.items() if points}


def _best(points: Points) -> Points:
    return sorted(dict(sorted(points, reverse=True)).items())  # the last, so lowest, of a width


def against_iss(results: Results) -> list[str]:
    """Return a line for each width at which ISS is better than ours, or that none is known yet.

    At every point of either within the widths that both reach; the other is taken from the
    straight lines between its own points.
    """
    if curves(results).keys() <= PAPERS:
        return []
    found = _beside_iss(results)
    if not found:
        return ["- RHN, neuron selection beside ISS at the same widths: not run yet."]
    return [
        f"- RHN, a width of {w:.0f}: test {ours - iss:.2f} worse than ISS."
        for w, ours, iss in found
        if ours > iss
    ]


def below_iss(results: Results) -> str:
    """Return, in a sentence, that ours is better than our ISS wherever they meet, if it is."""
    found = _beside_iss(results)
    if not found or any(ours > iss for _, ours, iss in found):
        return ""
    return (
        f"From a width of {found[0][0]:.0f} to one of {found[-1][0]:.0f}, which both reach, ours "
        f"is below our own ISS, by {min(iss - ours for _, ours, iss in found):.1f} or more; "
        "between its points each is taken as a straight line."
    )


def _beside_iss(results: Results) -> list[tuple[float, float, float]]:
    """Return (width, ours, ISS) at the points of either where both reach."""
    lines = curves(results)
    ours, iss = lines.get(OURS, []), lines.get(ISS, [])
    widths = sorted({w for w, _ in ours + iss if _reach(ours, w) and _reach(iss, w)})
    return [(w, _at(w, ours), _at(w, iss)) for w in widths]


def _reach(points: Points, width: float) -> bool:
    return bool(points) and points[0][0] <= width <= points[-1][0]


def _at(width: float, points: Points) -> float:
    for (a, p), (b, q) in pairwise(points):
        if a <= width <= b:
            return p + (q - p) * (width - a) / (b - a)
    return points[0][1]  # a single point, of this width


def _line(row: Row) -> str:
    """Return the line that a row belongs to."""
    if row.name.startswith("ptb-rhn-iss"):
        return ISS
    if row in HIGHWAY_CURVE:
        return OURS if row.kind == "small" else "from scratch, taught, 40 epochs"
    names = {
        "ptb-rhn-dense": "ours, dense, 120 epochs",
        "ptb-rhn-paper": "ours, taught, 160 epochs",
        "ptb-rhn-paper-control": "from scratch, taught, 160 epochs",
        "ptb-rhn-plain": "ours, plain, 100 epochs",
        "ptb-rhn-scratch": "from scratch, plain, 100 epochs",
    }
    return names[row.name]


def width_curve(results: Results) -> str:
    """Return the figure as an SVG file, or an empty text while there is nothing of ours.

    Group lasso may be so much worse that its scale would hide all else: where it is, its points
    are hollow, at the upper edge, with their perplexity.
    """
    lines = curves(results)
    if lines.keys() <= PAPERS:
        return ""
    shown = [p for name, line in lines.items() for _, p in line if name != ISS]
    y = fit(shown, HEIGHT - 46, TOP, air=0.08)
    x = fit([w for w, _ in chain.from_iterable(lines.values())], tick_room(y), KEY - 24, air=0.06)
    edge = tag("rect", x=x.start, y=TOP, width=x.end - x.start, height=HEIGHT - TOP)
    parts = [tag("clipPath", edge, id="plot")]
    parts.append(axes(x, y, x_title="neurons in the width", y_title="test perplexity"))
    places = {name: place for place, name in enumerate(lines)}
    for name in sorted(lines, key=lambda name: name not in PAPERS):  # those of ours on top
        colour, line = COLOURS[name], lines[name]
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
        key = TOP + 8 + 20 * places[name]
        parts.append(tag("circle", cx=KEY, cy=key - 4, r=4.5, fill=colour))
        parts.append(text(KEY + 12, key, name, "key"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" '
        f'width="{WIDTH:g}" height="{HEIGHT:g}"><style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
