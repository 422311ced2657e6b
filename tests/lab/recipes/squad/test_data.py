import gzip
import shutil

import pytest
import torch

from thinrnn._files import cache_folder
from thinrnn.lab.recipes.squad.batches import Batches, by_length, shuffled, usable
from thinrnn.lab.recipes.squad.prepare import prepare
from thinrnn.lab.run import InputError


class Lines:
    """Progress that remembers what was printed."""

    def __init__(self):
        self.printed = []

    def line(self, text):
        self.printed.append(text)


def prepared(folder, **settings):
    progress = Lines()
    return prepare(folder, **{"more_than": 3, **settings}, progress=progress), progress.printed


def test_answers_are_the_tokens_of_the_references(data):
    found, printed = prepared(data)
    for split in (found.train, found.dev):
        assert (split.answer[:, 0] >= 0).all() and (split.answer[:, 0] <= split.answer[:, 1]).all()
    dev = found.dev
    texts = [dev.text(q, *dev.answer[q].tolist()) for q in range(len(dev))]
    assert texts == [references[0] for references in dev.references]
    assert f"train: {len(found.train)} questions about 60 paragraphs" in printed


def test_words_are_trained_if_glove_has_them_not_and_they_are_frequent(data):
    found, _ = prepared(data)
    assert {"anna", "3.5", "u.s."} <= set(found.vocabulary.words)
    assert not {"ball", "the"} & set(found.vocabulary.words)
    rare, _ = prepared(data, more_than=10_000)
    assert rare.vocabulary.words == ()
    assert set(rare.tables.rows[1:].tolist()) == {1, *range(2, 2 + len(rare.tables.glove))}


def test_the_cache_returns_the_same_and_damage_is_repaired(data, tmp_path):
    first, _ = prepared(data, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    again, printed = prepared(data, cache=tmp_path)
    assert not any("reading" in line for line in printed) and again.notes == first.notes
    assert again.vocabulary == first.vocabulary
    assert again.dev.references == first.dev.references
    assert torch.equal(again.train.context, first.train.context)
    assert torch.equal(again.tables.characters, first.tables.characters)
    file.write_bytes(file.read_bytes()[:-100])
    _, printed = prepared(data, cache=tmp_path)
    assert any("reading" in line for line in printed)
    assert list(tmp_path.iterdir()) == [file]  # nothing half written stays


def test_another_setting_is_another_cache(data, tmp_path):
    for more_than in (3, 4):
        prepared(data, more_than=more_than, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_cache_that_cannot_be_written_is_only_reported(data, tmp_path):
    (tmp_path / "file").write_text("")
    found, printed = prepared(data, cache=tmp_path / "file")
    assert len(found.train) and any("not kept" in line for line in printed)


def test_the_cache_is_in_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "thinrnn"


def test_bad_records_are_counted_and_left_out(make_data, some_stories):
    paragraphs = some_stories["data"][0]["paragraphs"]
    questions = [qa for paragraph in paragraphs for qa in paragraph["qas"]]
    del questions[0]["question"]
    questions[1]["answers"] = [{"text": "nowhere", "answer_start": 2}]
    questions[2]["answers"][0]["answer_start"] = "5"
    del paragraphs[3]["context"]
    some_stories["data"].append({"title": "no paragraphs"})
    found, printed = prepared(make_data(some_stories))
    text = "\n".join(printed)
    for missing in ("question", "answer_start", "context", "paragraphs"):
        assert f"without '{missing}'" in text
    assert "not at its offset" in text
    left = usable(found.train, most_context=400, most_question=30)
    assert len(left) == len(found.train) - 1


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("squad/train-v1.1.json.gz", None, r"squad has no train-v1.1.json"),
        ("squad/train-v1.1.json.gz", gzip.compress(b"x" * 99, mtime=0)[:-9], "cut off or damaged"),
        ("squad/train-v1.1.json.gz", b"{", "is not valid JSON"),
        ("squad/train-v1.1.json.gz", b"[]", "is not a SQuAD file"),
        (
            "squad/train-v1.1.json.gz",
            b'{"data": [{}, {}]}',
            "no question that can be used: 2 article without 'paragraphs'",
        ),
        ("glove/glove.6d.txt", None, "holds no GloVe file"),
        ("glove/glove.6d.txt", b"the\n", "its first line has no numbers"),
        ("glove/glove.6d.txt", b"the 1 2\nhat 1 two\n", "line 2: could not convert"),
        ("glove/glove.6d.txt", b"der 1 2\n", "has no word of the text"),
        ("glove/more.txt", b"the 1 2\n", r"several GloVe files \(glove.6d.txt, more.txt\)"),
    ],
)
def test_files_that_cannot_be_used_are_reported_in_one_line(
    make_data, some_stories, file, content, message
):
    folder = make_data(some_stories)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        prepared(folder)
    assert "\n" not in str(caught.value)


def test_a_folder_without_the_two_folders_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"must hold squad/ .* and glove/"):
        prepared(tmp_path)


def test_batches_hold_the_words_of_their_questions_and_padding(data):
    found, _ = prepared(data)
    batches = Batches(found.dev, found.tables, torch.device("cpu"))
    which = torch.tensor([7, 0, 3])
    context, characters, question, _ = batches.take(which, (16, 4))
    assert context.shape[1] % 16 == 0 and question.shape[1] % 4 == 0
    for row, question in enumerate(which.tolist()):
        paragraph = int(found.dev.paragraph[question])
        begin, end = found.dev.context_bounds[paragraph : paragraph + 2].tolist()
        types = found.dev.context[begin:end].long()
        assert torch.equal(context[row, : end - begin], found.tables.rows[types].long())
        assert not context[row, end - begin :].any()
        assert not characters[row, end - begin :].any()
        assert (context[row, : end - begin] > 0).all()


def test_every_question_is_in_one_batch_and_lengths_in_a_batch_are_alike():
    lengths = torch.randint(10, 400, (1000,), generator=torch.Generator().manual_seed(0))
    questions = torch.arange(0, 1000, 2)
    generator = torch.Generator().manual_seed(1)
    batches = shuffled(questions, lengths, 10, generator)
    assert torch.equal(torch.cat(batches).sort().values, questions)
    spread = [float(lengths[b].max() - lengths[b].min()) for b in batches]
    assert sum(spread) / len(spread) < 30
    assert not torch.equal(batches[0], shuffled(questions, lengths, 10, generator)[0])
    assert torch.cat(list(by_length(lengths, 64))).sort().values.tolist() == list(range(1000))


def test_questions_too_long_or_without_tokens_are_not_trained_on(data):
    found, _ = prepared(data)
    lengths = found.train.context_lengths
    most = int(lengths.float().median())
    left = usable(found.train, most_context=most, most_question=30)
    assert 0 < len(left) < len(found.train) and (lengths[left] <= most).all()
    assert not len(usable(found.train, most_context=400, most_question=2))


def test_a_part_of_the_training_text_stands_in_for_dev(data, tmp_path):
    whole, _ = prepared(data)
    apart = shutil.copytree(data, tmp_path / "apart")
    (apart / "squad/dev-v1.1.json").write_text("dev is not read")
    held, printed = prepared(apart, held_out=0.25)
    assert any("held out:" in line and "15 paragraphs" in line for line in printed)
    assert len(held.train) + len(held.dev) == len(whole.train)
    assert 0 < len(held.dev) < len(held.train)
    assert held.fingerprint != whole.fingerprint
