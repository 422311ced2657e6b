"""What an exported reader is given, and what it says."""

import pytest
import torch

from thinrnn.lab.recipes.squad.batches import Batches
from thinrnn.lab.recipes.squad.export import FromVectors, own_words
from thinrnn.lab.recipes.squad.glove import read_glove
from thinrnn.lab.recipes.squad.load import load_model
from thinrnn.lab.recipes.squad.recipe import RECIPE
from thinrnn.lab.run.progress import Silent


def test_a_reader_of_vectors_returns_what_the_reader_of_rows_returns(finished, tiny, tmp_path):
    prepared = RECIPE.load_data(tiny(), Silent())
    tables = prepared.tables
    loaded = load_model(finished.path / "model", tables.glove)
    model = loaded.model
    batches = Batches(prepared.dev, tables, torch.device("cpu"))
    texts = batches.take_types(torch.tensor([0, 7, 3]))
    rows, characters = tables.rows.long(), tables.characters.long()
    given = [part for text in texts for part in (rows[text], characters[text])]
    found = FromVectors(model)(model.vectors(rows), characters, *texts)
    torch.testing.assert_close(found, model(*given))

    (tmp_path / "words.txt").write_text(own_words(loaded))
    rows, vectors = read_glove(tmp_path / "words.txt", {"anna", "<unk>"})
    trained = prepared.vocabulary.words.index("anna") + 2
    torch.testing.assert_close(vectors[rows["anna"]], model.words.weight[trained].detach())
    torch.testing.assert_close(vectors[rows["<unk>"]], model.words.weight[1].detach())


def test_a_reader_cannot_be_streamed(call, finished, tmp_path):
    arguments = ("export", finished.path, "--onnx", tmp_path / "reader.onnx", "--streaming")
    code, _, err = call(*arguments)
    assert code == 2 and "leave --streaming out" in err


def test_a_reader_becomes_a_file_that_takes_any_number_of_words(call, finished, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    code, _, err = call("export", finished.path, "--onnx", tmp_path / "reader.onnx")
    assert code == 0, err
    session = runtime.InferenceSession(tmp_path / "reader.onnx")
    model = load_model(finished.path / "model").model
    characters = torch.randint(1, model.characters.num_embeddings, (30, 16))
    texts = torch.randint(1, 30, (3, 21)), torch.randint(1, 30, (3, 8))
    texts[0][1, 15:] = 0
    given = (torch.randn(30, model.words.embedding_dim), characters, *texts)
    names = [one.name for one in session.get_inputs()]
    assert names == ["vectors", "characters", "context", "question"]
    found = session.run(None, {n: x.numpy() for n, x in zip(names, given, strict=True)})
    for ours, theirs in zip(found, FromVectors(model)(*given), strict=True):
        torch.testing.assert_close(torch.from_numpy(ours), theirs, rtol=1e-4, atol=1e-4)
