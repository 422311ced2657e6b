import errno
import os
import random

import numpy
import pytest
import torch

from thinrnn.lab.run import StorageError
from thinrnn.lab.run.checkpoint import Checkpoints
from thinrnn.lab.run.packing import pack
from thinrnn.lab.run.random_state import random_state, set_random_state_


def state(step):
    weight = torch.full((3, 2), float(step))
    return {
        "step": step,
        "weight": weight,
        "tied": weight,
        "carried": (torch.ones(1), [torch.zeros(0), None]),
        "plain": {"tensor": "not a mark", "nan": float("inf"), "ok": True},
        "half": torch.ones(2, dtype=torch.bfloat16),
    }


def test_a_state_comes_back_as_it_was(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.save("gated", state(7))
    found, notes = checkpoints.latest("gated")
    assert notes == []
    assert found["step"] == 7 and found["plain"] == state(7)["plain"]
    assert torch.equal(found["weight"], state(7)["weight"])
    assert torch.equal(found["tied"], found["weight"])
    assert isinstance(found["carried"], tuple) and found["carried"][1][1] is None
    assert found["half"].dtype == torch.bfloat16


def test_what_json_cannot_hold_is_refused_by_name():
    with pytest.raises(TypeError, match=r"'state\.a\.0' is a set"):
        pack({"a": [{1}]})


def test_two_are_kept_and_names_do_not_mix(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in range(5):
        checkpoints.save("dense", state(step))
    checkpoints.save("dense-b", state(9))
    assert [p.name for p in checkpoints.of("dense")] == ["dense-000004", "dense-000005"]
    assert checkpoints.latest("dense")[0]["step"] == 4
    checkpoints.drop("dense")
    assert checkpoints.latest("dense") == (None, [])
    assert checkpoints.latest("dense-b")[0]["step"] == 9


@pytest.mark.parametrize("part", ["tensors.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["torn", "flipped", "gone"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path, part, damage):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("gated", state(1))
    file = checkpoints.save("gated", state(2)) / part
    data = bytearray(file.read_bytes())
    if damage == "torn":
        file.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        data[len(data) // 2] ^= 0xFF
        file.write_bytes(data)
    else:
        file.unlink()
    found, notes = checkpoints.latest("gated")
    assert found["step"] == 1
    assert len(notes) == 1
    assert "gated-000002 is damaged" in notes[0] and "using the one before" in notes[0]


def test_damaged_ones_never_push_out_whole_ones(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("gated", state(1))
    (checkpoints.save("gated", state(2)) / "state.json").unlink()
    checkpoints.latest("gated")
    checkpoints.save("gated", state(3))
    assert [p.name for p in checkpoints.of("gated")] == ["gated-000001", "gated-000003"]


def test_when_all_are_damaged_the_phase_starts_again(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    (checkpoints.save("gated", state(1)) / "manifest.json").write_text("{}")
    found, notes = checkpoints.latest("gated")
    assert found is None and "starting this phase again" in notes[0]


@pytest.mark.parametrize("call", ["fsync", "replace", "mkdir"])
def test_a_full_disk_keeps_both_checkpoints(tmp_path, monkeypatch, call):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("gated", state(1))
    checkpoints.save("gated", state(2))

    def full(*_args, **_more):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(StorageError, match=r"the disk is full.*still there"):
            checkpoints.save("gated", state(3))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gated-000001", "gated-000002"]
    assert checkpoints.latest("gated")[0]["step"] == 2
    checkpoints.save("gated", state(3))
    assert checkpoints.latest("gated")[0]["step"] == 3


def test_random_numbers_go_on_as_if_nothing_had_happened(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("dense", random_state())
    wanted = (torch.rand(3), random.random(), numpy.random.rand(3), random.gauss(0, 1))
    saved, _ = checkpoints.latest("dense")
    set_random_state_(saved)
    assert torch.equal(torch.rand(3), wanted[0])
    assert random.random() == wanted[1]
    assert numpy.array_equal(numpy.random.rand(3), wanted[2])
    assert random.gauss(0, 1) == wanted[3]
