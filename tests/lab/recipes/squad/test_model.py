import pytest
import torch

import thinrnn
from thinrnn.lab.recipes.squad.model import (
    SIX,
    BiDAF,
    BiLSTM,
    best_spans,
    reading_order,
    weights_of,
)
from thinrnn.lab.recipes.squad.selection import probe, selected

SMALL = {"rows": 12, "characters": 9, "vector": 5, "character": 3, "filters": 4, "hidden": 5}


def small_model(seed=0, **changes):
    torch.manual_seed(seed)
    model = BiDAF(**{**SMALL, "six": (6, 7, 8, 6, 5, 7), **changes})
    model.set_glove_(torch.randn(10, 5))
    return model.eval()


@pytest.fixture(scope="module")
def found():
    """All groups of the small model; finding them takes some seconds."""
    model = small_model()
    return thinrnn.find_groups(model, probe(model))


def inputs(batch, tokens, question):
    return (
        torch.randint(1, 22, (batch, tokens)),
        torch.randint(0, 9, (batch, tokens, 16)),
        torch.randint(1, 22, (batch, question)),
        torch.randint(0, 9, (batch, question, 16)),
    )


def padded(given, tokens, question):
    """The same inputs with more padding."""
    wanted = (tokens, tokens, question, question)
    out = []
    for tensor, length in zip(given, wanted, strict=True):
        shape = (tensor.shape[0], length, *tensor.shape[2:])
        out.append(torch.zeros(shape, dtype=torch.long))
        out[-1][:, : tensor.shape[1]] = tensor
    return out


def test_the_weights_are_those_of_the_paper():
    model = BiDAF(rows=2, characters=2)
    assert weights_of(model)["others"] == 2_570_703
    sizes = (26, 33, 36, 36, 33, 15)
    assert weights_of(BiDAF(rows=2, characters=2, six=sizes))["others"] == 832_287


def test_glove_is_neither_trained_nor_saved():
    model = small_model()
    assert "glove" not in model.state_dict()
    assert "glove" not in dict(model.named_parameters())


def test_an_example_does_not_depend_on_its_neighbours_or_on_padding():
    model = small_model().double()
    one, other = inputs(1, 5, 3), inputs(1, 9, 6)
    alone = model(*one)
    pairs = zip(padded(one, 12, 6), padded(other, 12, 6), strict=True)
    together = model(*(torch.cat(pair) for pair in pairs))
    for single, both in zip(alone, together, strict=True):
        torch.testing.assert_close(both[:1, :5], single, rtol=1e-12, atol=1e-12)
        assert (both[0, 5:] < -1000).all()


def test_both_directions_are_those_of_a_bidirectional_lstm_on_packed_sequences():
    torch.manual_seed(1)
    ours = BiLSTM(4, 3, 3, 0.0).double()
    torchs = torch.nn.LSTM(4, 3, batch_first=True, bidirectional=True).double()
    for name, p in ours.fwd.named_parameters():
        getattr(torchs, name).data = p.data
    for name, p in ours.bwd.named_parameters():
        getattr(torchs, f"{name}_reverse").data = p.data
    x, lengths = torch.randn(3, 6, 4).double(), torch.tensor([6, 2, 4])
    mask = torch.arange(6) < lengths[:, None]
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
    wanted, _ = torch.nn.utils.rnn.pad_packed_sequence(torchs(packed)[0], batch_first=True)
    found = ours(x.transpose(0, 1), reading_order(mask.t())).transpose(0, 1)
    torch.testing.assert_close(found[mask], wanted[mask])


@pytest.mark.parametrize("most", [None, 3])
def test_the_best_span_is_the_best_of_all_pairs(most):
    torch.manual_seed(2)
    start, end = torch.randn(20, 8), torch.randn(20, 8)
    first, last = best_spans(start, end, most)
    for row in range(20):
        p, q = start[row].softmax(0), end[row].softmax(0)
        pairs = [(i, j) for i in range(8) for j in range(i, min(8, i + (most or 8)))]
        assert (int(first[row]), int(last[row])) == max(pairs, key=lambda ij: p[ij[0]] * q[ij[1]])


@pytest.mark.parametrize(("select", "groups"), [("six", 6), ("recurrent", 8), ("all", 11)])
def test_neurons_are_found_gated_compacted_and_verified(found, select, groups, tmp_path):
    model = small_model()
    plan = selected(found, model, select)
    assert len(plan.groups) == groups
    assert {f"{name}.l0" for name in SIX} <= {group.name for group in plan.groups}
    thinrnn.attach_(model, plan)
    for gate in thinrnn.gates(model).values():
        gate.log_alpha = torch.linspace(-4, 4, gate.size)
    small = thinrnn.compact(model)
    batch = (*padded(inputs(2, 7, 4), 9, 6),)
    assert thinrnn.verify(model, small, batch) < 1e-5
    assert weights_of(small)["weights"] < weights_of(small_model())["weights"]
    thinrnn.save(small, tmp_path / "model")
    loaded = thinrnn.load_(small_model(), tmp_path / "model")
    for ours, saved in zip(loaded(*batch), small(*batch), strict=True):
        torch.testing.assert_close(ours, saved)


def test_group_lasso_and_a_target_work_from_the_same_plan(found):
    model = small_model()
    plan = selected(found, model, "six")
    assert thinrnn.GroupLasso(model, plan, weight=1.0)() > 0
    thinrnn.attach_(model, plan)
    target = thinrnn.Target(model, params=0.8, steps=20)
    optimizer = torch.optim.Adam(thinrnn.param_groups(model, lr=1e-3, gate_lr=0.1))
    model.train()
    for _ in range(20):
        start, end = model(*probe(model))
        (start.logsumexp(1).mean() + end.logsumexp(1).mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
        target.step()
    small = thinrnn.compact(model.eval())
    assert thinrnn.count(small).params <= 0.8 * thinrnn.count(small_model()).params
    assert thinrnn.L0(model, weight=1.0)() > 0
