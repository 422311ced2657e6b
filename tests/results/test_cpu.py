"""Speed on a CPU: every figure on the pages is from the file of the bench."""

import json

from tools.results.cpu import FILE, Cpu
from tools.results.pages import write_pages

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


def rows(table):
    """Return the cells of each line but the head, by the first of them that are names."""
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def test_both_models_are_compared_in_the_same_runtime():
    summary = rows(Cpu(made_up()).summary())
    assert summary == [
        ["PyTorch eager", "600.0", "20.0", "30.0x", "90.0", "1.50", "60.0x"],
        ["ONNX Runtime float32", "300.0", "15.0", "20.0x", "12.0", "0.500", "24.0x"],
        ["ONNX Runtime int8", "80.0", "5.00", "16.0x", "3.00", "0.080", "37.5x"],
    ]


def test_all_times_have_quartiles():
    lines = rows(Cpu(made_up()).times())
    assert len(lines) == 2 * 3 * 4  # threads, cases, runtimes
    case = ["2", "batch 1, 1 step, cold caches", "ONNX Runtime float32"]
    assert [*case, "7.50 (6.75 to 8.25)", "0.500 (0.450 to 0.550)", "15.0x"] in lines
    assert ["PyTorch eager", "600.0 (540.0 to 660.0)", "20.0 (18.0 to 22.0)", "30.0x"] in rows(
        Cpu(made_up()).batches()
    )


def test_streams_8_bits_and_memory():
    cpu = Cpu(made_up())
    assert ["ONNX Runtime int8", "3.00", "0.080", "4.00", "0.500"] in rows(cpu.stream())
    assert ["ONNX Runtime int8", "6.2", "5.00", "0.080", "80.20"] in rows(cpu.gains())
    assert ["ONNX Runtime int8", "small", "6.2", "12.4", "6.2", "-"] in rows(cpu.memory())
    assert "15.0 times fewer mult-adds" in cpu.models and "(untrained)" in cpu.models


def test_what_was_not_measured_is_left_out():
    few = made_up()
    few["cases"] = [case for case in few["cases"] if case["runtime"] == "onnx"]
    few["quality"] = []
    cpu = Cpu(few)
    assert [line[0] for line in rows(cpu.summary())] == ["ONNX Runtime float32"]
    assert rows(cpu.gains())[0][-1] == "-" and cpu.perplexity("int8") is None


def test_places_are_filled_from_the_file(tmp_path):
    (tmp_path / "results/speed").mkdir(parents=True)
    (tmp_path / "docs/how-to").mkdir(parents=True)
    names = ("summary", "batches", "gains", "stream")
    text = "".join(f"<!-- cpu {n} -->\nstale\n<!-- end of cpu {n} -->\n" for n in names)
    page = tmp_path / "docs/how-to/int8.md"
    page.write_text(text)
    write_pages(tmp_path)
    assert page.read_text().count("Not measured yet.") == 4
    (tmp_path / "results" / FILE).write_text(json.dumps(made_up()))
    write_pages(tmp_path)
    cpu = Cpu(made_up())
    for part in (cpu.summary(), cpu.batches(), cpu.gains(), cpu.stream()):
        assert part in page.read_text()
    assert cpu.times() in (tmp_path / "RESULTS.md").read_text()
