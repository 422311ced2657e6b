"""Files from a server on this machine that misbehaves as servers do."""

import contextlib
import hashlib
import http.server
import socket
import threading

import pytest

from thinrnn.lab.cli import main
from thinrnn.lab.data import corpora, fetch
from thinrnn.lab.data.corpora import PublicFile
from thinrnn.lab.run import InputError
from thinrnn.lab.run.progress import Silent

CONTENT = bytes(range(256)) * 1000


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`; `breaks` are byte counts after which a transfer is cut off, in turn."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/a.bin": CONTENT}
        self.breaks = []
        self.status = []  # answers with these errors first
        self.ranges = True
        self.asked = []  # the Range header of every request

    def url(self, name=""):
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append(asked)
        if server.status:
            self.send_error(server.status.pop(0))
            return
        if self.path not in server.files:
            self.send_error(404)
            return
        content = server.files[self.path]
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if asked and server.ranges:
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            content = content[start:]
        else:
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

    def log_message(self, *arguments): ...


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    with contextlib.closing(Server()) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


Server.close = Server.server_close


def published(server, name="a.bin", content=CONTENT):
    return PublicFile(name, server.url(name), len(content), hashlib.sha256(content).hexdigest())


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_right_file_arrives_once(server, tmp_path):
    folder = tmp_path / "new" / "folder"
    assert fetch.fetch(published(server), folder, Silent())
    assert (folder / "a.bin").read_bytes() == CONTENT and names(folder) == ["a.bin"]
    assert not fetch.fetch(published(server), folder, Silent())
    assert server.asked == [None]


@pytest.mark.parametrize("wrong", [CONTENT[:-1] + b"x", CONTENT + b"x", b"<html>no"])
def test_a_wrong_file_is_not_kept(server, tmp_path, wrong):
    server.files["/a.bin"] = wrong
    with pytest.raises(fetch.DownloadError, match=r"a\.bin is not the file that was published"):
        fetch.fetch(published(server), tmp_path, Silent())
    assert names(tmp_path) == []


def test_a_broken_transfer_goes_on_where_it_broke(server, tmp_path):
    server.breaks = [70_000, 50_000]
    assert fetch.fetch(published(server), tmp_path, Silent())
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=70000-", "bytes=120000-"]


def test_a_transfer_that_breaks_again_and_again_is_resumed_by_the_next_call(server, tmp_path):
    server.breaks = [10_000] * fetch.TRIES
    expected = r"cannot fetch .*broke off\. 40,000 of 256,000 bytes are in .*a\.bin\.part; the same"
    with pytest.raises(fetch.DownloadError, match=expected):
        fetch.fetch(published(server), tmp_path, Silent())
    assert names(tmp_path) == ["a.bin.part"]
    assert fetch.fetch(published(server), tmp_path, Silent())
    assert server.asked[-1] == "bytes=40000-"
    assert names(tmp_path) == ["a.bin"] and (tmp_path / "a.bin").read_bytes() == CONTENT


def test_a_server_that_knows_no_ranges_sends_all_of_it_again(server, tmp_path):
    server.breaks, server.ranges = [70_000], False
    assert fetch.fetch(published(server), tmp_path, Silent())
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("left", [b"something else", b"x" * len(CONTENT), b"x" * 300_000])
def test_a_bad_beginning_from_an_earlier_call_is_thrown_away(server, tmp_path, left):
    (tmp_path / "a.bin.part").write_bytes(left)
    assert fetch.fetch(published(server), tmp_path, Silent())
    assert (tmp_path / "a.bin").read_bytes() == CONTENT and names(tmp_path) == ["a.bin"]


def test_a_beginning_longer_than_what_the_server_has_is_thrown_away(server, tmp_path):
    server.files["/a.bin"] = CONTENT[:1000]
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:2000])
    with pytest.raises(fetch.DownloadError, match=r"not the file that was published: 1,000 bytes"):
        fetch.fetch(published(server), tmp_path, Silent())
    assert names(tmp_path) == []


def test_a_busy_server_is_asked_again_and_a_missing_file_is_not(server, tmp_path):
    server.status = [503, 429]
    assert fetch.fetch(published(server), tmp_path, Silent())
    with pytest.raises(fetch.DownloadError, match=r"b\.bin: the server answers 404 Not Found"):
        fetch.fetch(published(server, "b.bin"), tmp_path, Silent())
    assert len(server.asked) == 4


def test_no_server_at_all_is_said(server, tmp_path):
    file = PublicFile("a.bin", "http://127.0.0.1:1/a.bin", 5, "0" * 64)
    with pytest.raises(fetch.DownloadError, match=r"cannot fetch http://127\.0\.0\.1:1/a\.bin: "):
        fetch.fetch(file, tmp_path, Silent())


def test_another_file_of_that_name_is_left_alone(server, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"mine")
    with pytest.raises(InputError, match=r"a\.bin is there, but is another file: remove it"):
        fetch.fetch(published(server), tmp_path, Silent())
    assert (tmp_path / "a.bin").read_bytes() == b"mine" and not server.asked


@pytest.fixture
def corpus(server, monkeypatch):
    """The Penn Treebank of the local server: two small files."""
    server.files = {"/ptb.train.txt": b"a b\n" * 50, "/ptb.valid.txt": b"a\n"}
    files = [published(server, path[1:], content) for path, content in server.files.items()]
    monkeypatch.setitem(
        corpora.CORPORA, "ptb", corpora.Corpus("ptb", "Penn Treebank", tuple(files))
    )
    return server


def call(*arguments):
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    return left.value.code or 0


def test_the_command_fetches_all_files_and_says_what_is_next(corpus, tmp_path, capsys):
    folder = tmp_path / "ptb"
    assert call("data", "ptb", folder) == 0
    said = capsys.readouterr().out.splitlines()
    assert names(folder) == ["ptb.train.txt", "ptb.valid.txt"]
    assert said[0] == "ptb.train.txt  200 bytes  fetched"
    assert said[-1].endswith(f"next: thinrnn train ptb-paper --data {folder}")
    assert call("data", "ptb", folder) == 0
    assert "was there" in capsys.readouterr().out


def test_the_command_takes_another_place_and_fails_in_one_line(corpus, tmp_path, capsys):
    corpus.files["/mirror/ptb.train.txt"] = corpus.files["/ptb.train.txt"]
    corpus.files["/mirror/ptb.valid.txt"] = b"wrong"
    mirror = corpus.url("mirror/")
    assert call("data", "ptb", tmp_path, "--mirror", mirror, "--json") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"thinrnn: {mirror}ptb.valid.txt is not the file that was published")
    assert (tmp_path / "ptb.train.txt").exists() and not (tmp_path / "ptb.valid.txt").exists()
    assert call("data", "ptb", tmp_path, "--mirror", "ftp://x") == 2
    assert call("data", "wsj", tmp_path) == 2
    assert "there is no corpus 'wsj': choose one of ptb" in capsys.readouterr().err
