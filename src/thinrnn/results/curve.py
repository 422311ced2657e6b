"""Test perplexity of recurrent highway networks against their width, like the paper's figure."""

from html import escape
from itertools import chain, pairwise

from thinrnn.report.scale import fit
from thinrnn.report.svg import axes, tag, text, tick_room
from thinrnn.results.read import Results
from thinrnn.results.rows import HIGHWAY, HIGHWAY_CURVE, Row

Points = list[tuple[float, float]]  # (width, test perplexity), from narrow to wide

WIDTH, HEIGHT = 640.0, 400.0
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

    Ours is taken from the straight lines between its points, at the widths that both reach.
    """
    lines = curves(results)
    if lines.keys() <= PAPERS:
        return []
    ours, iss = lines.get("ours, 40 epochs", []), lines.get("ours, ISS", [])
    common = [(w, p) for w, p in iss if ours and ours[0][0] <= w <= ours[-1][0]]
    if not common:
        return ["- RHN, neuron selection beside ISS at the same widths: not run yet."]
    found = [(w, p, _at(w, ours)) for w, p in common]
    return [
        f"- RHN, a width of {w:.0f}: test {our - p:.2f} worse than ISS."
        for w, p, our in found
        if our > p
    ]


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
    """Return the figure as an SVG file, or an empty text while there is nothing of ours."""
    lines = curves(results)
    if lines.keys() <= PAPERS:
        return ""
    points = list(chain.from_iterable(lines.values()))
    y = fit([p for _, p in points], HEIGHT - 46, 30, air=0.08)
    x = fit([w for w, _ in points], tick_room(y), WIDTH - 12, air=0.06)
    parts = [axes(x, y, x_title="neurons in the width", y_title="test perplexity")]
    for place, (name, line) in enumerate(lines.items()):
        colour = COLOURS[name]
        at = [(x(w), y(p)) for w, p in line]
        d = "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in at)
        dashes = {"stroke_dasharray": "5 4"} if name in PAPERS else {}
        parts.append(tag("path", d=d, fill="none", stroke=colour, stroke_width=2, **dashes))
        for (px, py), (width, perplexity) in zip(at, line, strict=True):
            title = tag("title", escape(f"{name}: {perplexity:.2f} at {width:.0f}"))
            parts.append(tag("circle", title, cx=px, cy=py, r=4.5, fill=colour))
        key = 44.0 + 18 * place
        parts.append(tag("circle", cx=WIDTH - 226, cy=key - 4, r=4.5, fill=colour))
        parts.append(text(WIDTH - 214, key, name, "key"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" '
        f'width="{WIDTH:g}" height="{HEIGHT:g}"><style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
