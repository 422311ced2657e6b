"""The figures on the page about readers are those of the results."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs/how-to/answer-questions.md").read_text(encoding="utf-8")


def results(name):
    return json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "kind", "row"),
    [
        ("squad-dense", "dense", "dense"),
        ("squad-thin", "small", "pruned, `squad-thin`"),
        ("squad-thin", "control", "the same shape from scratch"),
        ("squad-paper", "small", "pruned, `squad-paper`"),
        ("squad-paper", "control", "the same shape from scratch"),
        ("squad-fast", "small", "pruned, `squad-fast`"),
        ("squad-fast", "control", "the same shape from scratch"),
        ("squad-iss", "small", "group lasso, `squad-iss`"),
    ],
)
def test_scores_are_those_of_the_runs(name, kind, row):
    model = results(f"squad/{name}.json")["models"][kind]
    wanted = f"| {row} | {model['weights']:,} | {model['em']:.2f} | {model['f1']:.2f} |"
    assert wanted in PAGE


def test_speeds_are_those_of_the_benchmark():
    for case in results("speed/reader-speed-cpu.json")["cases"]:
        runtime = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime"}[case["runtime"]]
        times = case["text"]
        cells = [runtime, str(case["threads"]), str(case["batch"])]
        cells.append(f"{times['dense']['median']:.1f} ms")
        for name in ("squad-paper", "squad-fast"):
            one = times[name]
            cells.append(f"{one['median']:.1f} ms, {one['times_faster']:.2f}x")
        assert f"| {' | '.join(cells)} |" in PAGE
