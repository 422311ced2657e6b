"""Highway networks by width: the lines of the paper's figure, and ours beside ISS."""

from itertools import pairwise

from tools.results.read import Results
from tools.results.rows import HIGHWAY, HIGHWAY_CURVE, ISS, OURS

Points = list[tuple[float, float]]  # (width, test perplexity), from narrow to wide

ROWS = (*HIGHWAY, *HIGHWAY_CURVE)
PAPERS = {row.paper_line for row in ROWS if row.paper_line}


def lines(results: Results) -> dict[str, Points]:
    """Return the points of each line, ours as far as they were run; of one width, the best."""
    found: dict[str, Points] = {}
    for row in ROWS:
        each = ((row.paper_line, row.paper), (row.line, results.figures(row.name, row.kind)))
        for name, figures in each:
            if figures is not None:
                found.setdefault(name, []).append((float(figures.sizes), figures.mean("test")))
    return {name: _best(points) for name, points in found.items()}


def _best(points: Points) -> Points:
    return sorted(dict(sorted(points, reverse=True)).items())  # the last, so lowest, of a width


def has_ours(results: Results) -> bool:
    """Return whether anything of ours was run."""
    return not lines(results).keys() <= PAPERS


def against_iss(results: Results) -> list[str]:
    """Return a line for each width at which ISS is better than ours, or that none is known yet.

    At every point of either within the widths that both reach; the other is taken from the
    straight lines between its own points.
    """
    if not has_ours(results):
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
    by_name = lines(results)
    ours, iss = by_name.get(OURS, []), by_name.get(ISS, [])
    widths = sorted({w for w, _ in ours + iss if _reach(ours, w) and _reach(iss, w)})
    return [(w, _at(w, ours), _at(w, iss)) for w in widths]


def _reach(points: Points, width: float) -> bool:
    return bool(points) and points[0][0] <= width <= points[-1][0]


def _at(width: float, points: Points) -> float:
    for (a, p), (b, q) in pairwise(points):
        if a <= width <= b:
            return p + (q - p) * (width - a) / (b - a)
    return points[0][1]  # a single point, of this width
