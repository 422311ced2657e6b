"""Steps of runtimes and stacks: every figure is from the files of the benchmarks."""

from tools.results.step_runtimes import packages, stacks, table


def test_runtimes_that_are_missing_have_no_figure():
    found = {"times": {"PyTorch": {"LSTM 64": 66.41, "GRU 64": 20.0}, "C": {"LSTM 64": 3.02}}}
    head, _, torch, c = table(found).splitlines()
    assert head == "| runtime | LSTM 64 | GRU 64 |"
    assert torch == "| PyTorch | 66.4 | 20.0 |"
    assert c == "| C | 3.0 | - |"
    assert packages({"packages": {"torch": "2.13.0", "openvino": None}}) == "torch 2.13.0"


def test_stacks_are_listed_with_what_they_are_compared_with():
    figures = {"modules": 121.5, "stack": 39.0, "equal": 85.6, "dense": 1114.8}
    row = {"kind": "LSTM", "sizes": [12, 16], "shape": "1 step", **figures}
    assert stacks({"times": [row]}).splitlines()[-1] == (
        "| LSTM 12 and 16 | 1 step | 122 | 39 | 86 | 1,115 |"
    )
