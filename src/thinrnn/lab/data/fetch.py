"""Downloads: checked by hash, put in place only when complete."""

from pathlib import Path

from thinrnn._extras import require
from thinrnn.errors import ThinRNNError
from thinrnn.lab.data.corpora import PublicFile, digest
from thinrnn.lab.run.errors import InputError
from thinrnn.lab.run.files import storage
from thinrnn.lab.run.progress import Progress

RETRIES = 2
TIMEOUT = 30.0  # seconds


class DownloadError(ThinRNNError, RuntimeError):
    """A file could not be downloaded; the message gives the reason and the next step."""


class _Bytes:
    """The progress bar that pooch fills."""

    total = 0

    def __init__(self, file: PublicFile, progress: Progress) -> None:
        self.size, self.done, self.progress = file.size, 0, progress
        progress.start(file.name, file.size)

    def update(self, count: int) -> None:
        self.done = min(self.done + count, self.size)
        self.progress.step(self.done, MB=f"{self.done / 1e6:.1f}")

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None: ...


def fetch(file: PublicFile, folder: Path, progress: Progress) -> bool:
    """Download a file into a folder; return False if it was there already.

    Another file of this name is refused. pooch would replace it.
    """
    path = folder / file.name
    if path.exists():
        if digest(path) != file.sha256:
            raise InputError(
                f"{path} is not the published file: remove it, or choose another folder."
            )
        return False
    require("data", "pooch")
    import pooch
    from requests.exceptions import RequestException

    pooch.get_logger().setLevel("WARNING")
    store = pooch.create(
        folder,
        base_url="",
        registry={file.name: f"sha256:{file.sha256}"},
        urls={file.name: file.url},
        retry_if_failed=RETRIES,
    )
    bar = _Bytes(file, progress)
    with storage(path):
        try:
            store.fetch(
                file.name, downloader=pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT)
            )
        except RequestException as error:
            raise DownloadError(
                f"cannot download {file.url}: {_reason(error)}. "
                "Try again later, or name another server with --mirror URL."
            ) from None
        except ValueError:  # the hash is another one
            raise DownloadError(
                f"{file.url} is not the published file: its sha256 is not "
                f"{file.sha256[:12]}...; nothing was kept. Try again later, or name another "
                "server with --mirror URL."
            ) from None
        path.chmod(0o644)  # pooch's temporary files can be read by their owner alone
    return True


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    if response is not None:
        return f"the server answers {response.status_code} {response.reason}"
    return f"no connection ({type(error).__name__})"
