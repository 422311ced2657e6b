"""Speed of small readers against the dense one they were pruned from, on the CPU, in one run.

    python -m benchmarks.reader_speed --data DIR      DIR holds squad/ and glove/

Questions and texts are from dev, of about the median length, each about another text. All models
have the same words, GloVe included; the dense one has random weights of the shape that the folders
name. Timed are, for each runtime, number of threads and batch:

    tokens    from numbers of known words to logits
    text      from texts to answers: tokens, numbers, model, best span; all words are known
    new       the same, but every different word of the batch is met for the first time

With several threads parts of the batch are read side by side, a thread each, in both runtimes:
ONNX Runtime's own threads, which share out its operators, are slower for dense and small. Calls of
the models alternate, so that a noisy machine cannot favour one; medians are compared.
"""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.record import Call, parser, write_record
from thinrnn.lab.model_folder import read_file
from thinrnn.lab.recipes.squad.answering import Answerer, Words, padded
from thinrnn.lab.recipes.squad.evaluate import work
from thinrnn.lab.recipes.squad.glove import read_glove
from thinrnn.lab.recipes.squad.load import ReaderFile, load_model, sizes, vector_size
from thinrnn.lab.recipes.squad.model import BiDAF
from thinrnn.lab.recipes.squad.prepare import find_files
from thinrnn.lab.recipes.squad.reader import FastReader
from thinrnn.lab.recipes.squad.reading import read_squad
from thinrnn.lab.recipes.squad.tokens import split
from thinrnn.onnx import export_onnx
from thinrnn.timing import benchmark

Texts = tuple[list[str], list[str]]
SMALL = [Path("results/models/squad-paper"), Path("results/models/squad-fast")]


class Shared:
    """A reader whose batches are shared by several workers, one thread each."""

    def __init__(self, read: Callable[..., tuple[Tensor, Tensor]], workers: int) -> None:
        self.read, self.workers = read, workers
        self.pool = ThreadPoolExecutor(workers)  # threads that stay know what they have compiled

    def __call__(self, words: Tensor, *texts: Tensor) -> tuple[Tensor, Tensor]:
        parts = zip(*(text.chunk(self.workers) for text in texts), strict=True)
        found = list(work(lambda part: self.read(words, *part), parts, self.pool))
        start, end = (torch.cat(side) for side in zip(*found, strict=True))
        return start, end


def texts_of(path: Path, number: int) -> Texts:
    """Return contexts of about the median length, and the first question about each."""
    paragraphs = [p for p in read_squad(path)[0] if p.questions]
    paragraphs.sort(key=lambda paragraph: len(split(paragraph.context)))
    first = (len(paragraphs) - number) // 2
    chosen = paragraphs[first : first + number]
    return [p.context for p in chosen], [p.questions[0].text for p in chosen]


def in_onnxruntime(reader: FastReader, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Return a reader as ONNX Runtime runs it in one thread."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        export_onnx(reader, Path(folder) / "reader.onnx", example)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            Path(folder) / "reader.onnx", options, providers=["CPUExecutionProvider"]
        )
    names = [one.name for one in session.get_inputs()]

    def read(*given: Tensor) -> tuple[Tensor, ...]:
        fed = {name: tensor.numpy() for name, tensor in zip(names, given, strict=True)}
        return tuple(map(torch.from_numpy, session.run(None, fed)))

    return read


def calls_of(answerer: Answerer, texts: Texts) -> dict[str, Call]:
    """Return what is timed of one model: from tokens, from text, from text with new words."""
    words = answerer.words
    answerer.answer(*texts)
    numbers = [
        padded([words.number([text[a:b] for a, b in split(text)]) for text in part])
        for part in texts
    ]

    def new() -> None:
        words.forget()
        answerer.answer(*texts)

    return {
        "tokens": lambda: answerer.read(words.vectors, *numbers),
        "text": lambda: answerer.answer(*texts),
        "new": new,
    }


def compare(answerers: dict[str, Answerer], texts: Texts, seconds: float) -> dict[str, Any]:
    """Return milliseconds and how many times faster small models are, by what is timed."""
    calls = {name: calls_of(answerer, texts) for name, answerer in answerers.items()}
    found: dict[str, dict[str, dict[str, float]]] = {}
    for part in ("tokens", "text", "new"):
        models = {name: calls[name][part] for name in calls}
        times = benchmark(models, (), threads=1, seconds=seconds, rounds=7)
        found[part] = {
            name: {"median": t.median, "10%": t.low, "90%": t.high} for name, t in times.items()
        }
        for name, t in times.items():
            if name != "dense":
                found[part][name]["times_faster"] = times.speedup(name)
                found[part][name]["times_faster_at_10%"] = times["dense"].low / t.low
    return found


def main() -> None:
    arguments = parser(__doc__, "reader-speed-cpu.json")
    arguments.add_argument("--data", type=Path, required=True, help="folder with squad/ and glove/")
    arguments.add_argument("--model", type=Path, nargs="+", default=SMALL, help="small models")
    arguments.add_argument("--batch", type=int, nargs="+", default=[1, 60])
    arguments.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    arguments.add_argument("--runtime", nargs="+", default=["torch", "onnxruntime"])
    arguments.add_argument("--seconds", type=float, default=1.5, help="per model and case")
    options = arguments.parse_args()

    first = options.model[0]
    files = find_files(options.data, train=False, size=vector_size(first))
    texts = {batch: texts_of(files.dev, batch) for batch in options.batch}
    words_used = {
        text[a:b].lower()
        for parts in texts.values()
        for part in parts
        for text in part
        for a, b in split(text)
    }
    rows, vectors = read_glove(files.glove, words_used)
    loaded = {folder.name: load_model(folder, vectors) for folder in options.model}
    torch.manual_seed(0)
    shape = read_file(first / "recipe.json", ReaderFile).model
    dense = BiDAF(**shape.model_dump(exclude_unset=True)).eval()
    dense.set_glove_(vectors)
    models: dict[str, Any] = {"dense": dense}
    models |= {name: one.model for name, one in loaded.items()}
    vocabulary = loaded[first.name].vocabulary
    words = {n: Words(FastReader(m), vocabulary, rows, vectors) for n, m in models.items()}
    few = torch.randint(1, 9, (2, 7)), torch.randint(1, 9, (2, 4))
    cases = []
    for runtime in options.runtime:
        readers: dict[str, Callable[..., Any]] = {name: w.reader for name, w in words.items()}
        if runtime == "onnxruntime":
            for name, w in words.items():
                example = (torch.randn(9, w.table.shape[1]), *few)
                readers[name] = in_onnxruntime(w.reader, example)
        for threads in options.threads:
            answerers = {n: Answerer(w, Shared(readers[n], threads)) for n, w in words.items()}
            for batch in options.batch:
                found = compare(answerers, texts[batch], options.seconds)
                cases.append({"runtime": runtime, "threads": threads, "batch": batch, **found})
                shown = "  ".join(
                    f"{name} {found['text'][name]['median']:.2f} ms" for name in models
                )
                print(f"{runtime:<11} {threads} threads, batch {batch:>2}: {shown}", flush=True)
    write_record(
        "small readers against the dense one on the CPU, in milliseconds per batch",
        options,
        models=[str(folder) for folder in options.model],
        sizes={name: sizes(model) for name, model in models.items()},
        lengths={
            str(batch): {
                "context": [len(split(text)) for text in parts[0]],
                "question": [len(split(text)) for text in parts[1]],
            }
            for batch, parts in texts.items()
        },
        cases=cases,
    )


if __name__ == "__main__":
    main()
