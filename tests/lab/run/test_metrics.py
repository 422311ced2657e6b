import json

from thinrnn.lab.run.metrics import MetricsFile, read_metrics


def events(path):
    return list(read_metrics(path))


def test_a_torn_last_line_is_left_out_by_readers_and_cut_off_by_the_next_run(tmp_path):
    path = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(path)
    metrics.write({"step": 1})
    metrics.write({"step": 2})
    metrics.close()
    with path.open("ab") as file:
        file.write(b'{"step": 3, "lo')
    assert [e["step"] for e in events(path)] == [1, 2]
    again = MetricsFile(path)
    again.write({"step": 3})
    again.close()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3]


def test_a_file_with_nothing_but_a_torn_line_starts_again(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step"' + b" " * 200_000)
    metrics = MetricsFile(path)
    metrics.write({"step": 1})
    assert [e["step"] for e in events(path)] == [1]
    metrics.close()


def test_cut_goes_back_to_a_position_and_writing_continues_there(tmp_path):
    path = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(path)
    metrics.write({"step": 1})
    there = metrics.position()
    metrics.write({"step": 2})
    metrics.cut(there)
    metrics.write({"step": 20})
    assert [e["step"] for e in events(path)] == [1, 20]
    metrics.close()


def test_a_phase_can_be_forgotten(tmp_path):
    path = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(path)
    for phase in ("dense", "dense", "gated", "gated"):
        metrics.write({"phase": phase})
    metrics.cut_from("phase", "gated")
    assert [e["phase"] for e in events(path)] == ["dense", "dense"]
    metrics.close()
