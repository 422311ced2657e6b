"""Training steps of recurrent highway networks: every figure on the pages is from their files."""

import json

from tools.results.highway_step import FILES, missed, read, section
from tools.results.page import write_pages
from tools.results.places import PLACE

PAGE = "docs/how-to/recurrent-highway.md"


def measured(width, **milliseconds):
    """What the benchmark writes, in the parts that are shown."""
    times = {name.replace("_", " "): value for name, value in milliseconds.items()}
    sizes = {"width": width, "depth": 10, "steps": 35, "batch": 20, "words": 10_000}
    over = times.get("reference")
    return {
        "options": sizes,
        "environment": {"device": "a GPU"},
        "milliseconds": {name: {"median": value} for name, value in times.items()},
        "times_faster_than_the_reference": {n: over / v for n, v in times.items() if over},
        "counts": {
            "dependent_small_steps": 700,
            "floor_milliseconds_on_h200": {"operations": 0.1, "cache": 0.4, "memory": 0.2},
        },
    }


def test_ways_side_by_side_and_what_is_missed():
    wide = measured(830, reference=60.0, polling_graph=6.0)
    narrow = measured(389, polling_graph=3.25)
    page = section([wide, narrow])
    assert "| way | width 830, ms | over the first | width 389, ms |" in page
    assert "| one kernel for all small steps, as one CUDA graph | 6.00 | 10.0x | 3.25 |" in page
    assert "takes 15 times the largest" in page and "which is **missed**" in page
    assert [line.partition(": ")[2] for line in missed([wide, narrow])] == [
        "6.00 ms, asked: at most 4 ms.",
        "10.0x the reference, asked: at least 12x.",
    ]
    good = measured(830, reference=60.0, polling_graph=3.0)
    assert missed([good]) == [] and "which is reached" in section([good])


def test_the_page_is_filled_from_the_files(tmp_path):
    (tmp_path / "results/speed").mkdir(parents=True)
    (tmp_path / PAGE).parent.mkdir(parents=True)
    (tmp_path / PAGE).write_text("a\n<!-- highway step -->\nold\n<!-- end of highway step -->\nb\n")
    assert read(tmp_path / "results") == [] and missed([]) == []
    write_pages(tmp_path)
    assert "Not measured yet." in (tmp_path / PAGE).read_text()
    found = measured(830, reference=60.0, polling_graph=4.5)
    (tmp_path / "results" / FILES[0]).write_text(json.dumps(found))
    assert tmp_path / PAGE in write_pages(tmp_path) and write_pages(tmp_path) == []
    text = (tmp_path / PAGE).read_text()
    assert "| 4.50 | 13.3x |" in text and text.startswith("a\n") and text.endswith("b\n")
    assert "4.50 ms, asked: at most 4 ms" in (tmp_path / "RESULTS.md").read_text()


def test_the_page_has_its_places(pytestconfig):
    names = [place[2] for place in PLACE.finditer((pytestconfig.rootpath / PAGE).read_text())]
    assert names == ["highway step", "highway runs"]
