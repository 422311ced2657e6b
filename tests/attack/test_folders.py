"""No file of a run or model folder can hurt: one line and exit code 2, or nothing at all."""

import shutil

import pytest
from attack.conftest import attempt, describe
from attack.hostile import COMMANDS, corpus

SAMPLE = 12  # cases of each file in CI; `make attack` tries them all


def arguments(command, run):
    name, *options = command.split()
    more = {"generate": ["--tokens", "2"], "compact": ["--out", run / "out"]}.get(name, [])
    return [name, run.parent if name == "list" else run, *options, *more]


def attack(good_run, folder, cases):
    """Return what went wrong in the cases."""
    found = []
    for case in cases:
        run = folder / "run"
        shutil.copytree(good_run, run)
        case.change(run)
        # a model whose numbers are too large has no perplexity, which eval says with exit code 1
        codes = (0, 1, 2) if "safetensors" in case.name and "eval" in case.command else (0, 2)
        faults = attempt(*arguments(case.command, run)).faults(codes)
        found += [f"{case.command} after {case.name}: {fault}" for fault in faults]
        shutil.rmtree(run)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_hostile_folders_are_refused_in_one_line(name, good_run, tmp_path):
    cases = [c for c in corpus(good_run, sample=SAMPLE) if c.name.startswith(f"{name}: ")]
    faults = attack(good_run, tmp_path, cases)
    assert not faults, describe(faults)


@pytest.mark.attack
@pytest.mark.parametrize("name", COMMANDS)
def test_all_hostile_folders(name, good_run, tmp_path, count):
    cases = [c for c in corpus(good_run) if c.name.startswith(f"{name}: ")]
    faults = attack(good_run, tmp_path, cases)
    count("hostile folders", len(cases))
    assert not faults, describe(faults)
