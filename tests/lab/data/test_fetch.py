"""Downloads from a local server that misbehaves as servers do."""

import contextlib
import hashlib
import http.server
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from thinrnn.errors import MissingExtraError
from thinrnn.lab.data import corpora
from thinrnn.lab.data.corpora import PublicFile
from thinrnn.lab.data.fetch import RETRIES, DownloadError, fetch
from thinrnn.lab.run import InputError
from thinrnn.lab.run.progress import Silent

pytest.importorskip("pooch")

CONTENT = bytes(range(256)) * 1000


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`; each count in `breaks` cuts one transfer off after so many bytes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/a.bin": CONTENT}
        self.breaks: list[int] = []
        self.status: list[int] = []  # answers with these errors first
        self.requests = 0

    def url(self, name: str = "") -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        server.requests += 1
        if server.status or self.path not in server.files:
            self.send_error(server.status.pop(0) if server.status else 404)
            return
        content = server.files[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if server.breaks:
            self.wfile.write(content[: server.breaks.pop(0)])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self.wfile.write(content)

    def log_message(self, *arguments: Any) -> None: ...


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    made = Server()
    with contextlib.closing(made.socket):
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def published(server: Server, name: str = "a.bin", content: bytes = CONTENT) -> PublicFile:
    return PublicFile(name, server.url(name), len(content), hashlib.sha256(content).hexdigest())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_downloaded_once(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert fetch(published(server), folder, Silent())
    assert (folder / "a.bin").read_bytes() == CONTENT and names(folder) == ["a.bin"]
    assert not fetch(published(server), folder, Silent())
    assert server.requests == 1


@pytest.mark.parametrize("wrong", [CONTENT[:-1] + b"x", CONTENT + b"x", b"<html>no"])
def test_a_wrong_file_is_not_kept(server: Server, tmp_path: Path, wrong: bytes) -> None:
    server.files["/a.bin"] = wrong
    with pytest.raises(DownloadError, match=r"a\.bin is not the published file"):
        fetch(published(server), tmp_path, Silent())
    assert names(tmp_path) == []


def test_broken_transfers_and_busy_servers_are_retried(server: Server, tmp_path: Path) -> None:
    server.breaks, server.status = [70_000], [503]
    assert fetch(published(server), tmp_path, Silent())
    assert (tmp_path / "a.bin").read_bytes() == CONTENT and names(tmp_path) == ["a.bin"]
    assert server.requests == 3


def test_a_server_that_always_breaks_off_leaves_no_file(server: Server, tmp_path: Path) -> None:
    server.breaks = [10_000] * (RETRIES + 1)
    with pytest.raises(DownloadError, match="no connection"):
        fetch(published(server), tmp_path, Silent())
    assert names(tmp_path) == []


def test_a_missing_file_and_a_missing_server_are_named(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"b\.bin: the server answers 404 Not Found"):
        fetch(published(server, "b.bin"), tmp_path, Silent())
    nowhere = PublicFile("a.bin", "http://127.0.0.1:1/a.bin", 5, "0" * 64)
    with pytest.raises(DownloadError, match=r"http://127\.0\.0\.1:1/a\.bin: no connection"):
        fetch(nowhere, tmp_path, Silent())


def test_another_file_of_that_name_is_left_alone(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"mine")
    with pytest.raises(InputError, match=r"a\.bin is not the published file"):
        fetch(published(server), tmp_path, Silent())
    assert (tmp_path / "a.bin").read_bytes() == b"mine" and not server.requests


def test_without_pooch_the_extra_is_named(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pooch is not installed.*'\.\[data\]'"):
        fetch(published(server), tmp_path, Silent())


@pytest.fixture
def corpus(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The Penn Treebank of the local server: two small files."""
    server.files = {"/ptb.train.txt": b"a b\n" * 50, "/ptb.valid.txt": b"a\n"}
    files = [published(server, path[1:], content) for path, content in server.files.items()]
    monkeypatch.setitem(
        corpora.CORPORA, "ptb", corpora.Corpus("ptb", "Penn Treebank", tuple(files))
    )
    return server


def test_the_command_downloads_what_is_missing(corpus: Server, tmp_path: Path, call: Any) -> None:
    folder = tmp_path / "ptb"
    for downloaded in (True, False):
        code, out, _ = call("data", "ptb", folder, "--json")
        files = json.loads(out)["files"]
        assert code == 0 and [file["fetched"] for file in files] == [downloaded] * 2
    assert names(folder) == ["ptb.train.txt", "ptb.valid.txt"]
    assert call("data", "ptb", folder)[1].endswith(f"thinrnn train ptb-paper --data {folder}\n")


def test_the_command_takes_a_mirror_and_fails_in_one_line(
    corpus: Server, tmp_path: Path, call: Any
) -> None:
    corpus.files["/mirror/ptb.train.txt"] = corpus.files["/ptb.train.txt"]
    corpus.files["/mirror/ptb.valid.txt"] = b"wrong"
    mirror = corpus.url("mirror/")
    code, _, err = call("data", "ptb", tmp_path, "--mirror", mirror, "--json")
    assert code == 1 and err.splitlines()[-1].startswith(f"thinrnn: {mirror}ptb.valid.txt ")
    assert (tmp_path / "ptb.train.txt").exists() and not (tmp_path / "ptb.valid.txt").exists()
    assert call("data", "ptb", tmp_path, "--mirror", "ftp://x")[0] == 2
    assert call("data", "wsj", tmp_path)[0] == 2
