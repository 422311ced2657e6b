"""Speed on a CPU: every figure on the pages is from the file of the bench."""

import json

import pytest

from tools.results.cpu import Cpu
from tools.results.cpu_pages import contents, missed, section
from tools.results.page import write_pages
from tools.results.places import PAGES, PLACE, fill
from tools.results.read import Results

MILLISECONDS = {  # dense, small: batch 10 x 30, then a stream, warm and cold
    "eager": [(600, 20), (90, 1.5), (95, 3)],
    "onnx": [(300, 15), (12, 0.5), (15, 1)],
    "int8": [(80, 5), (3, 0.08), (4, 0.5)],
    "best": [(60, 2.5), (3, 0.09), (4, 0.5)],
}
SHAPES = [(10, 30, "warm"), (1, 1, "warm"), (1, 1, "cold")]
BYTES = {
    "eager": (264e6, 24.7e6),
    "onnx": (264e6, 24.7e6),
    "int8": (66e6, 6.2e6),
    "best": (66e6, 6.2e6),
}


def timed(value):
    return {"median": value, "lower": 0.9 * value, "upper": 1.1 * value, "calls": 15}


def made_up():
    """A comparison on one thread, and on two, where everything takes half as long."""
    return {
        "command": "thinrnn bench results/models/thin",
        "untrained": ["dense"],
        "models": {
            "dense": {"sizes": "1500-1500-1500", "macs": 51_000_000},
            "thin": {"sizes": "275-330-215", "macs": 3_400_000},
        },
        "environment": {"processor": "A1", "cores": 2, "torch": "2.13", "onnxruntime": "1.31"},
        "cases": [
            {
                **dict(zip(("batch", "steps", "caches"), shape, strict=True)),
                "runtime": runtime,
                "threads": threads,
                "models": {"dense": timed(dense / threads), "thin": timed(small / threads)},
            }
            for threads in (1, 2)
            for runtime, times in MILLISECONDS.items()
            for shape, (dense, small) in zip(SHAPES, times, strict=True)
        ],
        "memory": [
            {"runtime": r, "model": m, "bytes": b, "peak": 2 * b, "running": b, "start": None}
            for r, sizes in BYTES.items()
            for m, b in zip(("dense", "thin"), sizes, strict=True)
        ],
        "quality": [
            {"model": "thin", "runtime": "onnx", "perplexity": 80.0, "text": "valid.txt"},
            {"model": "thin", "runtime": "int8", "perplexity": 80.2, "text": "valid.txt"},
        ],
        "skipped": [],
    }


def test_ratios_are_those_of_the_medians_and_what_is_missed_is_said():
    page = section(Cpu(made_up()))
    assert "| 10 x 30: both in PyTorch eager | 30.0x | 30.0x | 19.4x: reached |" in page
    assert "float32 (the fair one) | 20.0x | 20.0x | 15.5x: reached |" in page
    assert "small in ONNX Runtime int8 | 120.0x | 120.0x | 85x: reached |" in page
    assert "| a stream, dense in ONNX Runtime float32, small in int8 | 150.0x |" in page
    assert "| the same with cold caches | 30.0x | 30.0x | reported |" in page
    assert "| file, dense float32 over small int8 | 42.6x |  | 42x: reached |" in page
    assert "int8 over float32 | +0.25% |  | at most +0.5%: reached |" in page
    assert "flatters" in page and "1500-1500-1500, untrained, small 275-330-215" in page
    assert "15.0 times fewer mult-adds" in page and "thinrnn bench results/models/thin" in page
    assert "| ONNX Runtime int8 | 80.0 (72.0 to 88.0) | 5.00 (4.50 to 5.50) | 16.0x |" in page
    assert "A stream: batch 1, one step, 2 threads, cold caches:" in page
    assert missed(Cpu(made_up())) == []

    worse = made_up()
    worse["cases"][6]["models"]["thin"] = timed(6)  # int8, 10 x 30, one thread
    worse["quality"][1]["perplexity"] = 81.0
    assert worse["cases"][6]["runtime"] == "int8"
    assert missed(Cpu(worse)) == [
        "- speed on a CPU, 10 x 30: dense in ONNX Runtime float32, small in int8: 50.0x, "
        "asked: 56x.",
        "- speed on a CPU, perplexity of the small model, int8 over float32: +1.25%, "
        "asked: at most +0.5%.",
    ]
    assert "50.0x | 60.0x | 56x: **missed** |" in section(Cpu(worse))


def test_what_was_not_measured_is_left_out():
    few = made_up()
    few["cases"] = [case for case in few["cases"] if case["runtime"] == "onnx"]
    few["memory"] = [one for one in few["memory"] if one["runtime"] == "onnx"]
    few["quality"] = []
    page = section(Cpu(few))
    assert "| 10 x 30: both in PyTorch eager | - | - | reported |" in page
    assert "20.0x" in page and "perplexity" not in page and "PyTorch eager | 600" not in page
    assert missed(Cpu(few)) == [] and section(None) == ""


@pytest.mark.parametrize("there", [False, True])
def test_marked_places_are_filled_and_the_rest_is_left_alone(tmp_path, there):
    (tmp_path / "results/speed").mkdir(parents=True)
    (tmp_path / "docs/how-to").mkdir(parents=True)
    names = ("summary", "batches", "gains", "stream")
    text = "".join(f"{n} before\n<!-- cpu {n} -->\nstale\n<!-- end of cpu {n} -->\n" for n in names)
    for name in PAGES:
        (tmp_path / name).write_text(text)
    if there:
        (tmp_path / "results/speed/bench-cpu.json").write_text(json.dumps(made_up()))
    changed = write_pages(tmp_path)
    assert {tmp_path / name for name in PAGES} < set(changed) and write_pages(tmp_path) == []
    page = (tmp_path / "README.md").read_text()
    assert "stale" not in page and all(f"{name} before\n" in page for name in names)
    assert page.count("Not measured yet.") == (0 if there else 4)
    if there:
        assert "| ONNX Runtime int8 | 6.2 | 5.00 | 0.080 | 80.20 |" in page
        assert "| ONNX Runtime int8 | 3.00 | 0.080 | 4.00 | 0.500 |" in page
        assert "| ONNX Runtime float32 | 300.0 (270.0 to 330.0) |" in page
        assert "## Speed on a CPU" in (tmp_path / "RESULTS.md").read_text()
        assert Results.read(tmp_path / "results").runs == {}  # it is no run


def test_a_place_that_has_no_figures_is_an_error():
    with pytest.raises(KeyError):
        fill("<!-- cpu nothing -->\n<!-- end of cpu nothing -->", contents(Cpu(made_up())))


def test_every_page_of_the_list_has_a_place(pytestconfig):
    for name in PAGES:
        assert PLACE.search((pytestconfig.rootpath / name).read_text()), name
