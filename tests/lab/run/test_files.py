import errno
import os

import pytest

from thinrnn.lab.run import StorageError
from thinrnn.lab.run.files import write_atomic


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    file = tmp_path / "small.json"
    write_atomic(file, "old")
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(StorageError, match=r"small\.json: the disk is full; free some space"):
        write_atomic(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_read_only_folder_is_named_with_the_reason(tmp_path, monkeypatch):
    def read_only(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "replace", read_only)
    with pytest.raises(StorageError, match="read-only; choose another folder"):
        write_atomic(tmp_path / "config.json", "{}")
