"""Tables and figures of models pruned from calibration data hold what the files hold."""

import json
from xml.etree import ElementTree

import pytest

from tools.results.calibration import Calibration, one_shot_table, start_table, worth_training

ONE_SHOT = {
    "dense": 80.0,
    "steps": 10,
    "model": {"metric": "valid_perplexity", "better": "lower"},
    "one_shot": [
        {"macs": m, "real_macs": m, "score": s, "refitted": r, "pruned": 100 / m, "trained": 90}
        for m in (0.5, 0.25)
        for s in ("reconstruct", "taylor")
        for r in (True, False)
    ],
    "gates": [
        {"macs": 0.5, "real_macs": 0.49, "pruned": 95.0, "trained": 86.25},
        {"macs": 0.5, "real_macs": 0.49, "pruned": 95.5, "trained": 85.25},
    ],
    "as_long": [{"macs": 0.5, "real_macs": 0.5, "pruned": 200, "trained": 86}],
}


def write(folder, **files):
    (folder / "calibration").mkdir()
    for name, content in files.items():
        path = folder / "calibration" / f"{name.replace('_', '-')}.json"
        path.write_text(json.dumps(content))
    return Calibration.read(folder)


def test_every_score_has_a_line_and_every_size_a_column():
    head, _, *lines = one_shot_table(ONE_SHOT).splitlines()
    assert "50% of the mult-adds | 25% of the mult-adds" in head
    assert lines[0] == "| `reconstruct`, refitted | 200.00 → 90.00 | 400.00 → 90.00 |"
    assert lines[-1] == "| gates | 95.50 → 85.25 | - |" and len(lines) == 6


def test_training_is_worth_it_where_it_makes_a_model_better():
    assert worth_training(ONE_SHOT) == ("50% and 25%", "")
    worse = {**ONE_SHOT, "model": {"better": "higher"}}
    assert worth_training(worse) == ("", "50% and 25%")


def test_starts_stand_side_by_side():
    row = {"macs": 0.5, "gate_steps": 300, "seeds": 3, "deviation": 0.5}
    means = [row | {"start": "alike", "mean": 81}, row | {"start": "reconstruct", "mean": 80}]
    line = start_table({"means": means}).splitlines()[-1]
    assert line == "| 50% | 300 | 81.00 ± 0.50 (3 seeds) | 80.00 ± 0.50 (3 seeds) |"


def test_pretrained_models_have_their_speed_and_figures_their_points(tmp_path):
    pytest.importorskip("matplotlib")
    encoder = {"cosine": 1.0, "same_speaker": 0.8, "other_speaker": 0.7, "auc": 0.7}
    times = {"pytorch_ms": 2.0, "onnx_ms": 1.0}
    found = write(
        tmp_path,
        voice_detector={
            "models": {
                "original": {"params": 100, "auc": 0.98, "agreement": 1.0},
                "50% distilled": {"params": 50, "auc": 0.97, "agreement": 0.95},
            }
        },
        voice_detector_speed_cpu={
            "models": {"original": times, "50% reconstruct": times | {"pytorch_ms": 1.0}}
        },
        speaker_encoder_speed_cpu={
            "models": {"original": {"pytorch_ms": 2.0}, "50% magnitude": {"pytorch_ms": 1.0}}
        },
        speaker_encoder={
            "models": {n: encoder | {"params": 4} for n in ("original", "50% magnitude")}
        },
        one_shot_ptb=ONE_SHOT,
    )
    assert found.models("voice-detector").splitlines()[-1] == (
        "| 50% distilled | 50 | 0.9700 | 0.9500 | 2.00x | 1.00x |"
    )
    assert found.models("speaker-encoder").splitlines()[-1].endswith("| 2.00x | - |")
    figures = found.figures()
    assert list(figures) == ["calibration/one-shot-ptb.svg", "calibration/pretrained.svg"]
    for text in figures.values():
        assert ElementTree.fromstring(text) is not None
    assert figures == found.figures()
