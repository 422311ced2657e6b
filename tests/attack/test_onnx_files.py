"""No ONNX file given to `quantize` or `bench` can hurt: one line, exit code 2, no abort."""

import random
import shutil
from collections.abc import Callable

import onnx
import pytest
from attack.conftest import SEED, TINY, apart, attempt, describe
from attack.hostile import damages
from onnx import TensorProto, helper

GRAPH = {
    "a weight of 10^12": lambda m: m.graph.initializer[0].dims.append(10**12),
    "a weight of -1": lambda m: m.graph.initializer[0].dims.__setitem__(0, -1),
    "a weight of another type": lambda m: setattr(m.graph.initializer[0], "data_type", 99),
    "a weight without data": lambda m: m.graph.initializer[0].ClearField("raw_data"),
    "weights elsewhere": lambda m: outside(m, "../../../../etc/passwd"),
    "weights in a device": lambda m: outside(m, "/dev/zero"),
    "no inputs": lambda m: m.graph.ClearField("input"),
    "no outputs": lambda m: m.graph.ClearField("output"),
    "no nodes": lambda m: m.graph.ClearField("node"),
    "no graph": lambda m: m.ClearField("graph"),
    "a circle": lambda m: m.graph.node[0].input.append(m.graph.node[-1].output[0]),
    "a node twice": lambda m: m.graph.node.append(m.graph.node[0]),
    "an unknown operator": lambda m: setattr(m.graph.node[0], "op_type", "Nonsense"),
    "an unknown domain": lambda m: setattr(m.graph.node[0], "domain", "no.where"),
    "another version": lambda m: setattr(m.opset_import[0], "version", 10**9),
    "a control code": lambda m: setattr(m.graph.node[0], "name", "\x1b[31m\u202e<script>"),
    "metadata": lambda m: helper.set_model_props(m, {"recipe": "\x1b]0;x\x07", "sizes": "[" * 9}),
    "deep graphs": lambda m: deep(m, 20),
    "a long name": lambda m: setattr(m.graph.node[0], "name", "x" * 10**6),
}


def outside(model: onnx.ModelProto, path: str) -> None:
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    tensor.external_data.add(key="location", value=path)


def deep(model: onnx.ModelProto, depth: int) -> None:
    """Put graphs into graphs: `If` takes two."""
    graph = helper.make_graph([], "inner", [], [])
    for _ in range(depth):
        node = helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([node], "outer", [], [])
        graph.node[0].attribute[1].g.ClearField("node")  # or it doubles at each level
    model.graph.node.insert(0, graph.node[0])


def of_graph(content: bytes, change: Callable[[onnx.ModelProto], object]) -> bytes:
    model = onnx.load_model_from_string(content)
    change(model)
    return model.SerializeToString()


def damaged(content: bytes, dice: random.Random) -> bytes:
    """Return a file with bits flipped, or with a part cut, doubled, zeroed or put in."""
    data = bytearray(content)
    a = dice.randrange(len(data))
    b = min(len(data), a + dice.randrange(1, 200))
    how = dice.choice(["flip", "flip", "flip", "cut", "double", "zero", "insert"])
    if how == "flip":
        for _ in range(dice.choice([1, 1, 2, 5, 50])):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    elif how == "cut":
        del data[a:]
    elif how == "double":
        data[a:a] = data[a:b]
    elif how == "zero":
        data[a:b] = bytes(b - a)
    else:
        data[a:a] = dice.randbytes(b - a)
    return bytes(data)


@pytest.fixture(scope="module")
def good(texts, tmp_path_factory):
    """An ONNX file of a tiny model."""
    folder = tmp_path_factory.mktemp("onnx")
    files = [part for n in ("train", "valid") for part in (f"--{n}", texts / f"{n}.txt")]
    settings = [part for k, v in TINY.items() for part in ("--set", f"{k}={v}")]
    dense = ("--set", "phases=dense")
    assert attempt("train", "lm", *files, "--out", folder / "run", *settings, *dense).code in (0, 1)
    ended = attempt(
        "export", folder / "run", "--kind", "dense", "--onnx", folder / "x.onnx", "--streaming"
    )
    assert ended.code == 0, ended
    return folder / "x.onnx"


def commands(file, texts):
    """Return the ways to read a file."""
    out = ["--out", file.with_name("y.onnx"), "--force"]
    return [
        ["quantize", file, *out],
        ["quantize", file, *out, "--best", "2"],
        ["quantize", file, *out, "--per-row", "--valid", texts / "valid.txt"],
        ["bench", file],
    ]


def test_hostile_onnx_files(good, texts, tmp_path, many, count):
    dice, content = random.Random(SEED), good.read_bytes()
    cases = [(what, of_graph(content, change)) for what, change in GRAPH.items()]
    cases += [(f"damage {n}", damaged(content, dice)) for n in range(many(50, 600))]
    shutil.copy(good.with_name("vocabulary.json"), tmp_path)
    file = tmp_path / "x.onnx"

    def try_one(case: tuple[int, tuple[str, bytes]]) -> list[str]:
        number, (what, data) = case
        file.write_bytes(data)
        ways = commands(file, texts)
        arguments = ways[0] if number < len(GRAPH) else ways[number % len(ways)]
        return [f"{what}, {arguments[0]}: {fault}" for fault in attempt(*arguments).faults()]

    found = apart(try_one, list(enumerate(cases)))
    count("ONNX files", len(cases))
    assert not found, describe(found)


def test_what_is_no_onnx_file_at_all(good, texts, tmp_path, many, count):
    found, tried = [], list(damages())[:: many(3, 1)]
    for number, (what, damage) in enumerate(tried):
        file = tmp_path / str(number) / "x.onnx"
        shutil.copytree(good.parent, file.parent, ignore=shutil.ignore_patterns("run"))
        damage(file)
        for arguments in commands(file, texts)[:: many(3, 1)]:
            ended = attempt(*arguments)
            found += [f"{what}, {arguments[0]}: {fault}" for fault in ended.faults((0, 2))]
    count("ONNX files", len(tried))
    assert not found, describe(found)
