"""Files from the network: checked by hash, put in place whole, resumed where they broke off.

The bytes go into NAME.part first. Whatever stops the transfer, the next call asks the server for
the rest alone (HTTP Range); only a complete file with the right hash gets its name.
"""

import http.client
import os
import time
import urllib.error
import urllib.request
from pathlib import Path

from thinrnn.errors import ThinRNNError
from thinrnn.lab.data.corpora import PublicFile, digest
from thinrnn.lab.run.errors import InputError, StorageError
from thinrnn.lab.run.files import storage, sync_folder
from thinrnn.lab.run.progress import Progress

TRIES = 4
PAUSE = 1.0  # seconds before the second try, twice as long before each later one
TIMEOUT = 30.0
PIECE = 1 << 16


class DownloadError(ThinRNNError, OSError):
    """A file could not be fetched; the message says why and what to do."""


def fetch(file: PublicFile, folder: Path, progress: Progress) -> bool:
    """Bring a file into a folder; return False if it was there already."""
    path = folder / file.name
    if path.exists():
        if digest(path) != file.sha256:
            raise InputError(
                f"{path} is there, but is another file: remove it, or choose another folder."
            )
        return False
    part = folder / f"{file.name}.part"
    with storage(part):
        folder.mkdir(parents=True, exist_ok=True)
    continued = _size(part) > 0
    _transfer(file, part, progress)
    if digest(part) != file.sha256 and continued:
        progress.line(f"{file.name}: what was there from an earlier call was wrong, starting again")
        part.unlink()
        _transfer(file, part, progress)
    found, size = digest(part), _size(part)
    if found != file.sha256:
        part.unlink()
        raise DownloadError(_other(file, f"{size:,} bytes with sha256 {found[:12]}..."))
    with storage(path):
        os.replace(part, path)
        sync_folder(folder)
    return True


def _transfer(file: PublicFile, part: Path, progress: Progress) -> None:
    """Fill `part` up, going on after breaks; too many bytes are a matter of the hash."""
    progress.start(file.name, file.size, min(_size(part), file.size))
    why = ""
    for tried in range(TRIES):
        if tried:
            progress.line(f"{file.name}: {why}, trying again")
            time.sleep(PAUSE * 2 ** (tried - 1))
        why = _try_transfer(file, part, progress)
        if not why:
            return
    raise DownloadError(
        f"cannot fetch {file.url}: {why}. {_size(part):,} of {file.size:,} bytes are in {part}; "
        "the same command goes on from there."
    )


def _try_transfer(file: PublicFile, part: Path, progress: Progress) -> str:
    """Return why another try is needed, or an empty text."""
    try:
        _append(file, part, progress)
        return "" if _size(part) >= file.size else "the transfer broke off"
    except (StorageError, DownloadError):
        raise
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # no such range: what is there is not the beginning of the file
            part.unlink(missing_ok=True)
        elif error.code < 500 and error.code != 429:
            raise DownloadError(
                f"{file.url}: the server answers {error.code} {error.reason}. "
                "Try another place with --mirror URL."
            ) from None
        return f"the server answers {error.code} {error.reason}"
    except (OSError, http.client.HTTPException) as error:
        return str(getattr(error, "reason", "") or error or type(error).__name__)


def _append(file: PublicFile, part: Path, progress: Progress) -> None:
    """Ask for what is missing and append what comes."""
    have = _size(part)
    if have >= file.size:
        return
    headers = {"Accept-Encoding": "identity", "User-Agent": "thinrnn"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(file.url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        goes_on = have and answer.status == 206 and _starts_at(answer, have)
        done = have if goes_on else 0
        length = answer.headers.get("Content-Length")
        if length is not None and done + int(length) != file.size:
            raise DownloadError(_other(file, f"{done + int(length):,} bytes"))
        with storage(part):
            out = part.open("ab" if goes_on else "wb")
        with out:
            # one byte more than expected is enough to know that it is another file
            while piece := answer.read(min(PIECE, file.size + 1 - done)):
                with storage(part):
                    out.write(piece)
                done += len(piece)
                progress.step(min(done, file.size), MB=f"{done / 1e6:.1f}")
            with storage(part):
                out.flush()
                os.fsync(out.fileno())


def _starts_at(answer: http.client.HTTPResponse, place: int) -> bool:
    return answer.headers.get("Content-Range", "").startswith(f"bytes {place}-")


def _other(file: PublicFile, what: str) -> str:
    return (
        f"{file.url} is not the file that was published: {what}, not {file.size:,} with "
        f"{file.sha256[:12]}...; it was not kept. Try again later, or give another place with "
        "--mirror URL."
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
