"""thinrnn prune: a trained model made smaller without training."""

import json

import pytest

TINY = {
    "minutes": "none",
    "embedding": 10,
    "hidden": "12,12",
    "epochs": 3,
    "batch": 8,
    "bptt": 16,
    "lr": 0.01,
    "phases": "dense",
    "tensorboard": "no",
    "device": "cpu",
    "threads": 1,
    "bench_batch": 1,
    "bench_steps": 2,
    "bench_seconds": 0,
}


@pytest.fixture(scope="module")
def run(texts, tmp_path_factory):
    """A run with a dense model alone."""
    from thinrnn.lab.cli import main

    folder = tmp_path_factory.mktemp("runs") / "lm"
    options = [part for k, v in TINY.items() for part in ("--set", f"{k}={v}")]
    with pytest.raises(SystemExit) as left:
        main(["train", "lm", "--data", str(texts), "--out", str(folder), *options])
    assert not left.value.code
    return folder


def test_a_run_is_pruned_and_measured_on_its_own_texts(run, tmp_path, call):
    code, printed, _ = call("prune", run, "--params", 0.5, "--out", tmp_path / "small", "--json")
    result = json.loads(printed)
    before, after = result["before"], result["after"]
    assert code == 0
    assert 0.4 * before["params"] < after["params"] <= 0.5 * before["params"]
    dense = json.loads((run / "dense.json").read_text())
    for name in ("valid_perplexity", "test_perplexity"):
        assert before[name] == pytest.approx(dense[name], rel=1e-4)
    assert result["report"]["difference"] < 1e-4
    code, printed, _ = call("eval", tmp_path / "small", "--data", run.parent, "--json")
    assert code == 2  # no texts there
    assert (
        json.loads(call("eval", run, "--kind", "dense", "--json")[1])["params"] == before["params"]
    )


def test_what_is_printed_and_what_follows(run, texts, call):
    code, printed, _ = call("prune", run / "dense", "--data", texts, "--macs", 0.6)
    lines = printed.splitlines()
    assert code == 0 and lines[-1].startswith(f"wrote {run}/dense/pruned; next: thinrnn bench")
    assert any(line.startswith("rnn.l0") for line in lines)
    assert any(line.startswith("valid perplexity") for line in lines)
    code, printed, _ = call("eval", run / "dense/pruned", "--data", texts)
    assert code == 0 and "valid perplexity" in printed
    # the model that was pruned is pruned again, and read again
    code, printed, err = call(
        *("prune", run / "dense/pruned", "--data", texts, "--params", 0.8, "--sequential"),
        *("--score", "activation", "--json"),
    )
    assert code == 0, err
    again = json.loads(printed)
    assert again["after"]["params"] <= 0.8 * again["before"]["params"]
    code, _, err = call("prune", run / "dense", "--data", texts, "--macs", 0.6)
    assert code == 2 and "give --force" in err
    assert call("prune", run / "dense", "--data", texts, "--macs", 0.5, "--force")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{run}"], "give --params or --macs"),
        (["{run}/dense", "--params", "0.5"], "give --data DIR"),
        (["{run}", "--params", "1e-9"], "cannot be met"),
        (["{run}", "--params", "nan"], "cannot be met"),
        (["{run}", "--params", "0.5", "--score", "taylor"], "choose one of reconstruct"),
        (["{run}", "--params", "0.5", "--kind", "small"], "it has: dense"),
        (["{run}", "--params", "0.5", "--data", "{run}"], "has neither *valid*.txt"),
        (["{run}", "--params", "0.5", "--out", "{run}/dense"], "is the model to prune"),
        (["{run}", "--params", "0.5", "--calls", "1"], "--calls"),
        (["nowhere", "--params", "0.5"], "nowhere does not exist"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    run, arguments, message, tmp_path, call, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    before = sorted(run.rglob("*"))
    code, printed, err = call("prune", *(a.format(run=run) for a in arguments))
    assert code == 2 and message in err and err.splitlines()[-1].startswith("thinrnn: ")
    assert "Traceback" not in printed + err
    assert sorted(run.rglob("*")) == before and list(tmp_path.iterdir()) == []
