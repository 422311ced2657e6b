"""Whatever write fails, and wherever a process dies: the run then ends in the same weights."""

import shutil

import pytest
from attack import short_run
from attack.conftest import describe
from attack.faults import faults
from attack.short_run import result

EVERY = 10**9
KINDS = {"full": 8, "broken": 8, "killed": 6}  # cases of the short profile


@pytest.fixture(scope="module")
def train(texts):
    """Train or resume a short run, in this process."""
    return lambda folder: short_run.train(texts, folder)


@pytest.fixture(scope="module")
def whole(train, tmp_path_factory):
    """What an undisturbed run ends in, and how many things it does to its folder."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with faults(folder) as state:
        assert train(folder).code in (0, 1)
    return result(folder), state.count


@pytest.mark.extended
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_fault_at_any_write_the_run_ends_in_the_same_weights(
    kind, train, whole, tmp_path, many, count
):
    wanted, things = whole
    tried = min(things, many(KINDS[kind], EVERY))
    found = []
    for number in range(tried):
        at, folder = number * things // tried, tmp_path / "run"
        where = f"{kind} at {at} of {things}"
        with faults(folder, kind, at):
            if kind == "killed":
                child = short_run.fork(lambda folder=folder: train(folder), tmp_path / "log")
                code = short_run.ended(child)  # a report now and then is a matter of time
                found += [] if code in (-9, 0, 1) else [f"{where}: ended with {code}"]
            else:
                found += [f"{where}: {fault}" for fault in train(folder).faults((0, 1, 2))]
        again = train(folder)
        found += [f"{where}, then: {fault}" for fault in again.faults((0, 1))]
        if not found and result(folder) != wanted:
            found.append(f"{where}: other weights")
        if left := [path for path in folder.rglob(".*") if path.name != ".lock"]:
            found.append(f"{where}: left {left}")
        shutil.rmtree(folder, ignore_errors=True)
    count(f"faults: {kind}", tried)
    assert not found, describe(found)
