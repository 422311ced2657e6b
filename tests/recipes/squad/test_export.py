"""What an exported reader is given; the export of LSTMs has tests of its own."""

import torch

from thinrnn.recipes.squad.batches import Batches
from thinrnn.recipes.squad.export import FromVectors, own_words
from thinrnn.recipes.squad.glove import read_glove
from thinrnn.recipes.squad.load import load_model
from thinrnn.recipes.squad.train import load_data
from thinrnn.run.progress import Silent


def test_a_reader_of_vectors_says_what_the_reader_of_rows_says(finished, tiny, tmp_path):
    prepared = load_data(tiny(), Silent())
    batches = Batches(prepared.dev, prepared.tables, torch.device("cpu"))
    inputs = batches.take(torch.tensor([0, 7, 3])).inputs
    loaded = load_model(finished.path / "model", prepared.tables.glove)
    model = loaded.model
    given = model.vectors(inputs[0]), inputs[1], model.vectors(inputs[2]), inputs[3]
    for ours, theirs in zip(FromVectors(model)(*given), model(*inputs), strict=True):
        torch.testing.assert_close(ours, theirs)

    (tmp_path / "words.txt").write_text(own_words(loaded))
    rows, vectors = read_glove(tmp_path / "words.txt", {"anna", "<unk>"})
    trained = prepared.vocabulary.words.index("anna") + 2
    torch.testing.assert_close(vectors[rows["anna"]], model.words.weight[trained].detach())
    torch.testing.assert_close(vectors[rows["<unk>"]], model.words.weight[1].detach())


def test_a_reader_cannot_be_streamed(call, finished, tmp_path):
    arguments = ("export", finished.path, "--onnx", tmp_path / "reader.onnx", "--streaming")
    code, _, err = call(*arguments)
    assert code == 2 and "leave --streaming out" in err
