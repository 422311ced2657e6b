"""Training steps of recurrent highway networks: every figure is from their files."""

import json

from tools.results.highway_step import FILES, best, read, table


def measured(width, **milliseconds):
    """What the benchmark writes, in the parts that are shown."""
    times = {name.replace("_", " "): value for name, value in milliseconds.items()}
    over = times.get("reference")
    return {
        "settings": {"width": width},
        "milliseconds": {name: {"median": value} for name, value in times.items()},
        "times_faster_than_the_reference": {n: over / v for n, v in times.items() if over},
    }


def test_ways_stand_side_by_side():
    wide = measured(830, reference=60.0, polling_graph=6.0)
    head, _, *lines = table([wide, measured(389, polling_graph=3.25)]).splitlines()
    assert "width 830, ms" in head and "width 389, ms" in head
    assert lines[0].endswith("| 60.00 | 1.0x | - |") and lines[1].endswith(
        "| 6.00 | 10.0x | 3.25 |"
    )
    assert best(wide) == 6.0


def test_both_widths_are_read_if_they_are_there(tmp_path):
    assert read(tmp_path) == []
    (tmp_path / "speed").mkdir()
    (tmp_path / FILES[0]).write_text(json.dumps(measured(830)))
    assert read(tmp_path) == [measured(830)]
