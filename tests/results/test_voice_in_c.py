"""The voice detector in C: every figure is from the file of the benchmark."""

from tools.results.voice_in_c import table


def test_each_detector_has_quality_and_time():
    found = {
        "quality": {
            "original": {"params": 309633, "auc": 0.97840, "agreement": 1.0},
            "small in C, int8": {"auc": 0.97537, "agreement": 0.9735},
        },
        "microseconds": {"original": 801.2, "small in C, int8": 52.4},
    }
    assert table(found).splitlines()[2:] == [
        "| original | 309,633 | 0.9784 | 100.0% | 801 |",
        "| small in C, int8 | - | 0.9754 | 97.4% | 52 |",
    ]
