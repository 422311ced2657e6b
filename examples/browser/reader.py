"""Make the folder of a web page that answers questions about texts.

python reader.py MODEL --glove glove.6B.100d.txt --to FOLDER
python -m http.server --directory FOLDER
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from thinrnn.errors import ThinRNNError
from thinrnn.lab.cli.find_model import find_model
from thinrnn.lab.recipes.squad.export import UNKNOWN, export_model
from thinrnn.lab.recipes.squad.glove import read_glove
from thinrnn.lab.recipes.squad.load import read_vocabulary, vector_size
from thinrnn.lab.recipes.squad.tokens import split
from thinrnn.lab.run.errors import InputError
from thinrnn.lab.run.files import storage, write_atomic

HERE = Path(__file__).parent
RUNTIME = "node_modules/onnxruntime-web/dist"
PAGE = {
    "reader.html": "index.html",
    **{name: name for name in ("reader.js", "reading.js", "style.css")},
    **{
        f"{RUNTIME}/{name}": f"{RUNTIME}/{name}"
        for name in (
            "ort.wasm.min.mjs",
            "ort-wasm-simd-threaded.mjs",
            "ort-wasm-simd-threaded.wasm",
        )
    },
}
MEGABIT = 1e6 / 8  # bytes


class Tokens:
    """All words that a token of a text can be in lower case; no other is ever looked up."""

    def __contains__(self, word: object) -> bool:
        # In lower case this one letter is two, of which the second is no letter.
        written = str(word).replace("i\u0307", "\u0130")
        return word == str(word).lower() and split(written) == [(0, len(written))]


def make_page(model: Path, glove: Path, to: Path, most: int | None = None) -> dict[str, int]:
    """Write all files of the page into a folder; return their sizes in bytes."""
    if not (HERE / RUNTIME).exists():
        raise InputError(f"onnxruntime-web is not installed: run npm install in {HERE}.")
    if most is not None and most < 1:
        raise InputError(f"--words is {most}: give 1 or more.")
    size = vector_size(model)
    found, vectors = read_glove(glove, Tokens())
    if vectors.shape[1] != size:
        raise InputError(
            f"{glove} has vectors of {vectors.shape[1]} numbers, but the model was trained with "
            f"{size}: give the GloVe file of that size."
        )
    with storage(to):
        to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "reader.onnx"
        export_model(model, file)
        known = json.loads(file.with_name("vocabulary.json").read_text(encoding="utf-8"))
        wanted = {UNKNOWN, *read_vocabulary(model).words}
        own, trained = read_glove(file.with_name("words.txt"), wanted)
        write_atomic(to / file.name, file.read_bytes())
    # The unknown word is row 0. Words that the model trained come before GloVe's.
    given = [word for word in list(found)[:most] if word not in own]
    known |= {"vector": size, "words": [*own, *given]}
    rows = [trained.numpy(), vectors.numpy()[[found[word] for word in given]]]
    write_atomic(to / "words.json", json.dumps(known, ensure_ascii=False))
    write_atomic(to / "vectors.bin", b"".join(part.astype("<f2").tobytes() for part in rows))
    for name, there in PAGE.items():
        with storage(to / there):
            (to / there).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(HERE / name, to / there)
    names = ["reader.onnx", "words.json", "vectors.bin", *PAGE.values()]
    return {name: (to / name).stat().st_size for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description="A web page that answers questions about texts.")
    parser.add_argument("model", type=Path, help="run, or folder of a model")
    parser.add_argument("--glove", type=Path, required=True, help="GloVe file, plain or gzipped")
    parser.add_argument("--to", type=Path, required=True, help="folder that is made")
    parser.add_argument("--words", type=int, help="only the first, most frequent ones of GloVe")
    options = parser.parse_args()
    try:
        model = find_model(options.model).folder
        sizes = make_page(model, options.glove, options.to, options.words)
    except ThinRNNError as error:
        sys.exit(f"reader.py: {error}")
    total = sum(sizes.values())
    data = {name: size for name, size in sizes.items() if name not in PAGE.values()}
    data |= {"page and onnxruntime-web": total - sum(data.values())}
    for name, size in data.items():
        print(f"{size / 1e6:8.2f} MB  {name}")
    seconds = total / (50 * MEGABIT)
    print(f"{total / 1e6:8.2f} MB  to load before the first answer: {seconds:.0f} s at 50 Mbit/s")
    print(f"next: python -m http.server --directory {options.to}")


if __name__ == "__main__":
    main()
