"""No option, setting or TOML file can hurt: each works, or is refused in one line."""

import json
import random
import shutil
import tomllib

import pytest
import typer
from attack.conftest import SEED, TINY, attempt, describe

from thinrnn.lab.cli.app import app
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.recipes.squad.settings import SquadSettings
from thinrnn.lab.run import InterruptedRunError

pytestmark = pytest.mark.extended

VALUES = {
    "nothing": "",
    "a blank": " ",
    "-1": "-1",
    "0": "0",
    "0.5": "0.5",
    "10^12": str(10**12),
    "10^19": str(10**19),
    "5,000 digits": "9" * 5000,
    "1e400": "1e400",
    "NaN": "nan",
    "-Infinity": "-inf",
    "many zeros": ",".join("0" * 9000),
    "a long text": "x" * 100_000,
    "control codes": "\x1b[31mred\x07\u202e",
    "bytes that are no UTF-8": "\udcff\udcfe",
    "a zero byte": "a\0b",
    "a list": "[[1], [2]]",
    "an object": '{"a": {"b": 1}}',
    "deep lists": "[" * 20_000,
    "null": "null",
    "an assignment": "a=b=c",
    "an option": "--out",
    "/dev/zero": "/dev/zero",
    "/dev/full": "/dev/full",
    "a folder": "..",
    "a folder above": "../../x",
    "markup": "<script>alert(1)</script>",
}
# TOML values that no text of --set can be
TOML = {
    "a date": "1979-05-27",
    "true": "true",
    "infinity": "-inf",
    "an integer of 5,000 digits": "9" * 5000,
    "deep lists": "[" * 5000 + "]" * 5000,
    "deep tables": "{a=" * 5000 + "1" + "}" * 5000,
    "a zero byte": r'"a\u0000b"',
    "a control code": r'"\u001b[31m\u202e"',
    "mixed": '[1, "x", {a = 1}]',
    "an empty table": "{}",
    "an empty list": "[]",
    "a long text": f'"{"x" * 100_000}"',
}
LONG_WORK = {"epochs", "written", "bptt", "tokens", "seconds"}  # large values are only slow
SLOW = {"bench", "demo", "doctor"}  # each call starts processes, or trains


@pytest.fixture
def no_training(monkeypatch):
    """Runs are begun and not trained."""

    def stop(*_, **__):
        raise InterruptedRunError("stopped before the first step.")

    monkeypatch.setattr("thinrnn.lab.driver.train_phases", stop)


@pytest.fixture(scope="module")
def place(good_run, tmp_path_factory):
    """Where commands run: a folder with a run in it and an ONNX file."""
    inside = tmp_path_factory.mktemp("arguments") / "a" / "b"
    shutil.copytree(good_run, inside / "run")
    attempt("export", inside / "run", "--onnx", inside / "run/x.onnx", "--streaming")
    return inside


@pytest.fixture
def base(place, texts, monkeypatch):
    """What a command needs beside the option that is tried."""
    monkeypatch.chdir(place)
    files = [part for n in ("train", "valid") for part in (f"--{n}", texts / f"{n}.txt")]
    settings = [part for k, v in TINY.items() for part in ("--set", f"{k}={v}")]
    return {
        "train": ["lm", *files, "--out", "new", *settings],
        "demo": ["--out", "new", *settings],
        "list": [],
        "eval": ["run"],
        "bench": ["run", "--seconds", 0, "--batch", 1, "--steps", 1, "--runtimes", "eager"],
        "report": ["run"],
        "compact": ["run", "--out", "new"],
        "prune": ["run", "--params", 0.8, "--out", "new", "--calls", 4],
        "export": ["run", "--out", "new/x.onnx"],
        "quantize": ["run/x.onnx", "--out", "new/y.onnx"],
        "generate": ["run", "--tokens", 2],
        "ask": ["run", "--context", texts / "valid.txt", "--question", "Who?"],
        "data": [],
        "doctor": [],
    }


def options():
    """Return all commands, with what each takes: the name of an option, None for an argument."""
    found = []
    for name, command in typer.main.get_command(app).commands.items():
        for parameter in command.params:
            if parameter.name == "help" or getattr(parameter, "is_flag", False):
                continue
            is_option = parameter.param_type_name == "option"
            found.append((name, parameter.opts[0] if is_option else None, parameter.name))
    return found


def chosen(cases, number):
    return random.Random(SEED).sample(cases, min(number, len(cases)))


def tried(name, arguments):
    """Return what went wrong, and leave nothing behind."""
    faults = attempt(*arguments).faults((0, 1, 2, 130))
    shutil.rmtree("new", ignore_errors=True)
    return [f"{name}: {fault}" for fault in faults]


def test_every_option_with_every_value(base, no_training, many, count):
    cases = [
        (command, option, what)
        for command, option, name in options()
        for what in VALUES
        if name not in LONG_WORK or not what.startswith(("10^", "5,000"))
        if command not in SLOW or many(0, 1)
    ]
    cases, found = chosen(cases, many(120, 400)), []
    for command, option, what in cases:
        given = [VALUES[what]] if option is None else [option, VALUES[what]]
        # an argument in place of the usual one, an option beside the others
        usual = base.get(command, [])[1:] if option is None else base.get(command, [])
        found += tried(f"{command} {option or 'ARGUMENT'} {what}", [command, *given, *usual])
    count("arguments", len(cases))
    assert not found, describe(found)


def test_every_setting_with_every_value(base, no_training, many, count):
    fields = {"lm": LanguageModelSettings, "squad-paper": SquadSettings}
    cases = [
        (preset, name, what)
        for preset, settings in fields.items()
        for name in settings.model_fields
        for what in VALUES
        if preset == "lm" or many(0, 1)
    ]
    cases, found = chosen(cases, many(80, 500)), []
    for preset, name, what in cases:
        usual = base["train"] if preset == "lm" else [preset, "--out", "new"]
        found += tried(
            f"{preset} {name} {what}", ["train", *usual, "--set", f"{name}={VALUES[what]}"]
        )
    count("settings", len(cases))
    assert not found, describe(found)


def test_every_key_of_a_toml_file_with_every_value(base, no_training, tmp_path, many, count):
    file, found = tmp_path / "settings.toml", []
    values = {**{what: json.dumps(value) for what, value in VALUES.items()}, **TOML}
    fields = LanguageModelSettings.model_fields
    cases = [(key, what) for key in [*fields, "unknown", '"\\u001b[31m"'] for what in values]
    cases = chosen(cases, many(60, 300))
    for key, what in cases:
        file.write_text(f"{key} = {values[what]}\n", errors="surrogateescape")
        found += tried(f"{key} {what}", ["train", *base["train"], "--config", file])
    count("TOML", len(cases))
    assert not found, describe(found)


def test_damaged_toml_files(base, no_training, tmp_path, many, count):
    file, found = tmp_path / "settings.toml", []
    good = "".join(f"{key} = {json.dumps(value)}\n" for key, value in TINY.items()).encode()
    assert tomllib.loads(good.decode())
    cases = [good[:place] for place in range(0, len(good), many(40, 3))]
    for place in range(0, len(good), many(20, 1)):
        changed = bytearray(good)
        changed[place] ^= 1 << place % 8
        cases.append(bytes(changed))
    cases += [b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"[" * 100_000, b"a." * 50_000, b"a=1\n" * 2]
    for number, case in enumerate(cases):
        file.write_bytes(case)
        found += tried(f"case {number}", ["train", *base["train"], "--config", file])
    count("TOML", len(cases))
    assert not found, describe(found)
