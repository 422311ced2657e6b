"""The promise of the library over the whole grid: gated in eval equals compact, saved or not."""

import copy
import tempfile
import warnings
from typing import Any

import torch
from cell_grid import CellShape, cell_oracle, cell_shapes
from grids import A_HALF, GateSetting, Shape, gate_settings, gated_model, oracle, shapes
from hypothesis import given
from hypothesis import strategies as st
from rnn_grid import assert_same
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

import thinrnn
from thinrnn._gates.attach import attached
from thinrnn._surgery.provenance import record_of
from thinrnn._surgery.save import Precision
from thinrnn.plan import Plan

SEVERAL = st.lists(gate_settings(), min_size=5, max_size=5)  # gates are cheap, plans are not
CARRYING = st.sampled_from(["optional", "given"]).flatmap(lambda state: shapes(state=state))
RAW_INPUT = st.sampled_from(["linear", "nothing"]).flatmap(lambda front: shapes(front=front))


@given(shapes(), SEVERAL)
def test_compact_equals_gated(shape: Shape, settings: list[GateSetting]) -> None:
    model, plan = gated_model(shape)
    assert_all_is_gated(plan, shape)
    longer = tuple(n + 1 for n in shape.lengths)
    for seed, setting in enumerate(settings):
        setting.apply(model)
        arguments = shape.arguments(seed, longer)
        small = compacted(model)
        assert_close(small(*arguments), model(*arguments))
        for name, gate in thinrnn.gates(model).items():
            kept = record_of(small).kept[name]
            assert kept == (gate.keep.nonzero().flatten().tolist() or kept[:1])
    assert thinrnn.verify(model, small, arguments) <= 1e-10


@given(CARRYING, SEVERAL)
def test_state_carried_over_calls(shape: Shape, settings: list[GateSetting]) -> None:
    model, _ = gated_model(shape)
    for setting in settings:
        setting.apply(model)
        small = compacted(model)
        x, state, lengths = shape.arguments()
        expected, large_state = model(x, state, lengths)
        result, small_state = small(x, state, lengths)
        assert_close(result, expected)
        for seed in (1, 2):
            x, _, lengths = shape.arguments(seed)
            expected, large_state = model(x, large_state, lengths)
            result, small_state = small(x, small_state, lengths)
            assert_close(result, expected)


@A_HALF
@given(shapes(), SEVERAL, st.integers(2, 4))
def test_round_to(shape: Shape, settings: list[GateSetting], multiple: int) -> None:
    model, _ = gated_model(shape)
    arguments = shape.arguments(1)
    for setting in settings:
        setting.apply(model)
        small = compacted(model, round_to=multiple)
        assert_close(small(*arguments), model(*arguments))
        for name, gate in thinrnn.gates(model).items():
            kept = set(record_of(small).kept[name])
            is_open = set(gate.keep.nonzero().flatten().tolist())
            up = -(-max(len(is_open), 1) // multiple) * multiple
            assert is_open <= kept
            assert len(kept) == min(up, gate.size)


@A_HALF
@given(RAW_INPUT, SEVERAL)
def test_only_the_kept_inputs_are_given(shape: Shape, settings: list[GateSetting]) -> None:
    model, _ = gated_model(shape)
    x, *rest = shape.arguments(1)
    for setting in settings:
        setting.apply(model)
        small = compacted(model, inputs="kept")
        assert_close(small(kept_part(small, x), *rest), model(x, *rest))


@A_HALF
@given(shapes(), SEVERAL, st.sampled_from(["same", "kept"]))
def test_saved_and_loaded(shape: Shape, settings: list[GateSetting], inputs: str) -> None:
    model, _ = gated_model(shape)
    x, *rest = shape.arguments(1)
    for setting in settings[:2]:
        setting.apply(model)
        small = compacted(model, inputs=inputs)
        given = kept_part(small, x) if inputs == "kept" else x
        for precision in ("float32", "float16", "int8"):
            loaded = saved_and_loaded(small, shape, precision)
            rounded = copy.deepcopy(small)  # rounding alone, no loading
            with torch.no_grad():
                pairs = zip(rounded.named_parameters(), loaded.named_parameters(), strict=True)
                for (name, before), (same_name, after) in pairs:
                    assert name == same_name
                    assert ((after - before).abs() <= largest_rounding(before, precision)).all()
                    before.copy_(after)
            assert_close(loaded(given, *rest), rounded(given, *rest), 0)
            assert record_of(loaded) == record_of(small)


@A_HALF
@given(shapes(), SEVERAL)
def test_gated_equals_the_slow_oracle(shape: Shape, settings: list[GateSetting]) -> None:
    model, plan = gated_model(shape)
    plain = shape.model()
    arguments = shape.arguments(1)
    for setting in settings:
        setting.apply(model)
        values = {name: gate.value for name, gate in thinrnn.gates(model).items()}
        assert_same(model(*arguments), oracle(plain, plan, values, arguments), 1e-11)


@A_HALF
@given(shapes(), SEVERAL)
def test_gates_on_rows_and_columns_are_the_masks_of_the_paper(
    shape: Shape, settings: list[GateSetting]
) -> None:
    model, plan = gated_model(shape)
    thinrnn.attach_(thinrnn.detach_(model), plan, placement="both")
    arguments = shape.arguments(1)
    for setting in settings:
        setting.apply(model)
        values = {name: gate.value for name, gate in thinrnn.gates(model).items()}
        masked = shape.model().eval()
        parameters = dict(masked.named_parameters(remove_duplicate=False))
        done = set()
        with torch.no_grad():
            for group in plan:
                for part in group.slices:
                    parameter = parameters[part.parameter]
                    is_row = part.parameter.startswith("rnn.weight")
                    key = (id(parameter), part.dim, group.name)
                    if key in done or (part.role == "produce" and not is_row):
                        continue
                    done.add(key)
                    positions, neurons = part.index()
                    shaped = [-1 if d == part.dim else 1 for d in range(parameter.dim())]
                    gate = values[group.name][neurons].view(shaped)
                    parameter.index_copy_(
                        part.dim, positions, parameter.index_select(part.dim, positions) * gate
                    )
        assert_same(model(*arguments), masked(*arguments), 1e-11)
        assert_close(compacted(model)(*arguments), model(*arguments))


@A_HALF
@given(shapes(), SEVERAL)
def test_training_equals_the_slow_oracle(shape: Shape, settings: list[GateSetting]) -> None:
    """One sample serves the whole call, and its gradients are those of the equations."""
    model, plan = gated_model(shape)
    model.train()
    plain = shape.model()
    gates = [gate.log_alpha for gate in thinrnn.gates(model).values()]
    weights = {n: p for n, p in model.named_parameters() if not n.startswith("thinrnn:")}
    assert [name for name, _ in plain.named_parameters()] == list(weights)
    arguments = shape.arguments(1)
    for setting in settings[:2]:
        setting.apply(model)
        result = model(*arguments)
        sample = {name: z.requires_grad_() for name, z in attached(model).last.items()}
        expected = oracle(plain, plan, sample, arguments)
        assert_same(result, expected, 1e-11)
        direction = torch.randn_like(output_of(expected))
        slow = (output_of(expected) * direction).sum()
        found = gradients(slow, [*sample.values(), *plain.parameters()])
        of_gates = [g * slope(z) for g, z in zip(found, sample.values(), strict=False)]
        loss = (output_of(result) * direction).sum()
        for fast, by_hand in zip(
            gradients(loss, [*gates, *weights.values()]),
            [*of_gates, *found[len(sample) :]],
            strict=True,
        ):
            torch.testing.assert_close(fast, by_hand, rtol=1e-9, atol=1e-11)


@A_HALF
@given(cell_shapes(), SEVERAL)
def test_cells_in_loops(shape: CellShape, settings: list[GateSetting]) -> None:
    model = shape.model().eval()
    plan = thinrnn.find_groups(model, shape.arguments())
    cells = [f"cells.{k}" for k in range(len(shape.kinds))]
    assert sorted(group.name for group in plan) == [*cells, "x"], str(plan)
    thinrnn.attach_(model, plan)
    plain = shape.model()
    x, state = shape.arguments(1)
    for setting in settings:
        setting.apply(model)
        expected = model(x, state)
        values = {name: gate.value for name, gate in thinrnn.gates(model).items()}
        assert_close(expected, cell_oracle(plain, plan, values, x, state), 1e-11)
        small = compacted(model)
        result = small(x, state)
        assert_close(result, expected)
        if shape.state == "given":
            assert_close(small(x, result[1]), model(x, expected[1]))
        with tempfile.TemporaryDirectory() as folder:
            loaded = thinrnn.load_(shape.model(seed=1), thinrnn.save(small, folder)).eval()
        assert_close(loaded(x, state), result, 0)


def assert_all_is_gated(plan: Plan, shape: Shape) -> None:
    names = [name for group in plan for name in group.name.split("+")]
    wanted = {f"rnn.{part}" for part in shape.parts}
    if shape.kind == "projected LSTM":
        wanted |= {f"rnn.{part}_cell" for part in shape.parts}
    wanted.add({"embedding": "front", "linear": "front.0", "nothing": "x"}[shape.front])
    assert wanted <= set(names), str(plan)
    assert [refusal.group.name for refusal in plan.refused] == ["head"]


def compacted(model: nn.Module, **options: Any) -> nn.Module:
    """The small model; a warning comes if, and only if, some group is closed as a whole."""
    empty = [name for name, gate in thinrnn.gates(model).items() if not gate.keep.any()]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        small = thinrnn.compact(model, **options)
    assert [str(w.message).split("'")[1] for w in caught] == empty
    return small


def assert_close(result: Any, expected: Any, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(
        output_of(result), output_of(expected), rtol=tolerance, atol=tolerance
    )


def output_of(result: Any) -> Tensor:
    return result[0] if isinstance(result, tuple) else result


def kept_part(small: nn.Module, x: Any) -> Any:
    """The features that the small model kept, where there is a choice of features."""
    kept = thinrnn.kept_inputs(small).get("x")
    if kept is None:
        return x
    if isinstance(x, PackedSequence):
        return PackedSequence(x.data[..., kept], *x[1:])
    return x[..., kept]


def saved_and_loaded(small: nn.Module, shape: Shape, precision: Precision) -> nn.Module:
    with tempfile.TemporaryDirectory() as folder:
        thinrnn.save(small, folder, precision=precision)
        return thinrnn.load_(shape.model(seed=1), folder).eval()


def largest_rounding(tensor: Tensor, precision: Precision) -> Tensor:
    """How far each element may move when it is stored."""
    if precision == "float32":
        return torch.zeros_like(tensor)
    if precision == "float16":
        return tensor.abs() * 2**-11 + 2**-25  # half a unit in the last place, or denormal
    if tensor.dim() < 2:
        return tensor.abs() * 2**-24
    row = tensor.abs().flatten(1).amax(1).view(-1, *[1] * (tensor.dim() - 1))
    return row * (1 / 254 + 2**-22) + 0 * tensor  # half a step, and the arithmetic in float32


def gradients(loss: Tensor, of: list[Tensor]) -> list[Tensor]:
    found = torch.autograd.grad(loss, of, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(found, of, strict=True)]


def slope(z: Tensor) -> Tensor:
    """dz/dlog_alpha of the hard concrete gate, from its sample: z = 1.2 t - 0.1 before clamping."""
    t = (z.detach() + 0.1) / 1.2
    return torch.where((z > 0) & (z < 1), 1.2 * t * (1 - t) / (2 / 3), 0.0)
