"""The figures on the page about readers are those of the results."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/how-to/answer-questions.md").read_text(encoding="utf-8")


def results(name):
    return json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "kind", "row"),
    [
        ("squad-dense", "dense", "dense"),
        ("squad-paper", "small", "pruned, `squad-paper`"),
        ("squad-paper", "control", "the same shape from scratch"),
    ],
)
def test_scores_are_those_of_the_runs(name, kind, row):
    model = results(f"{name}.json")["models"][kind]
    wanted = f"| {row} | {model['weights']:,} | {model['em']:.2f} | {model['f1']:.2f} |"
    assert wanted in PAGE


def test_speeds_are_those_of_the_benchmark():
    for case in results("reader-speed-cpu.json")["cases"]:
        runtime = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime"}[case["runtime"]]
        cells = [runtime, str(case["threads"]), str(case["batch"])]
        for part in ("tokens", "text", "new"):
            c = case[part]
            cells.append(
                f"{c['dense']['median']:.1f} / {c['small']['median']:.1f} ms, "
                f"{c['times_faster']:.2f}x"
            )
        assert f"| {' | '.join(cells)} |" in PAGE
