"""thinrnn data: download a public corpus."""

from pathlib import Path
from typing import Annotated

import typer

from thinrnn.lab.cli.options import Json
from thinrnn.lab.command import command


def data(
    corpus: Annotated[
        str, typer.Argument(metavar="CORPUS", help="ptb: the Penn Treebank, word level.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder for the files.")],
    mirror: Annotated[
        str | None, typer.Option(metavar="URL", help="Another server with the same files.")
    ] = None,
    json: Json = False,
) -> None:
    """Download a public corpus and check each file by its hash."""
    import dataclasses

    from thinrnn._table import table
    from thinrnn.lab.cli.output import progress, show
    from thinrnn.lab.data import corpora
    from thinrnn.lab.data.fetch import fetch
    from thinrnn.lab.run import InputError

    chosen = corpora.corpus(corpus)
    files = chosen.files
    if mirror is not None:
        if not mirror.startswith(("http://", "https://")):
            raise InputError(f"--mirror is '{mirror}', but must begin with http:// or https://.")
        files = tuple(
            dataclasses.replace(file, url=f"{mirror.rstrip('/')}/{file.name}") for file in files
        )
    with progress(json) as shown:
        fetched = [(file, fetch(file, folder, shown)) for file in files]
    rows = [
        (file.name, f"{file.size:,} bytes", "downloaded" if is_new else "already there")
        for file, is_new in fetched
    ]
    listed = [
        {"name": file.name, "bytes": file.size, "sha256": file.sha256, "fetched": is_new}
        for file, is_new in fetched
    ]
    result = {"corpus": chosen.name, "folder": str(folder), "files": listed}
    next_ = command("train", "ptb-paper", "--data", folder)
    last = f"wrote the {chosen.title} to {folder}; next: {next_}"
    show(result, table(rows), last, as_json=json)
