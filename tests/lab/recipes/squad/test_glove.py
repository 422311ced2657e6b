"""A GloVe file is read once; later uses find the same vectors."""

import os

import pytest
import torch

from thinrnn._files import cache_folder
from thinrnn.lab.recipes.squad.glove import find_vectors, read_glove
from thinrnn.lab.run.errors import InputError

WANTED = {"two", "does", "keys", "nowhere"}


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def kept_file():
    (file,) = cache_folder().glob("glove-*.safetensors")
    return file


def assert_same(ours, theirs):
    assert ours[0].keys() == theirs[0].keys()
    for word, row in theirs[0].items():
        torch.testing.assert_close(ours[1][ours[0][word]], theirs[1][row])


def test_the_cache_returns_what_the_file_has(data):
    glove = data / "glove/glove.6d.txt"
    wanted = read_glove(glove, WANTED)
    for _ in range(2):
        assert_same(find_vectors(glove, WANTED), wanted)
    kept_file().write_bytes(b"cut off")
    assert_same(find_vectors(glove, WANTED), wanted)


def test_a_file_that_changed_is_read_again(tmp_path):
    glove = tmp_path / "glove.txt"
    glove.write_text("two 1 2\n")
    find_vectors(glove, WANTED)
    glove.write_text("two 3 4\nkeys 5 6\n")
    os.utime(glove, ns=(1, 1))
    rows, vectors = find_vectors(glove, WANTED)
    assert vectors[rows["two"]].tolist() == [3, 4] and vectors[rows["keys"]].tolist() == [5, 6]


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, data, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    rows, _ = find_vectors(data / "glove/glove.6d.txt", WANTED)
    assert rows.keys() == WANTED - {"nowhere"}


def test_a_file_without_any_word_of_the_text_is_refused(data):
    with pytest.raises(InputError, match="has no word of the text"):
        find_vectors(data / "glove/glove.6d.txt", {"nowhere"})
