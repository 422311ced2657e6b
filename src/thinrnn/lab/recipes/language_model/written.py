"""Text that a trained model writes, to learn from besides the real one.

    last words (B,) ── k times side by side ── teacher, one word a step ── k texts (L, B)
                                                  ▲  drawn from its softmax
    real text (L, B), text 1 (L, B), ... text k (L, B)    below one another: (L + k L, B),
                                                          each stream from another place on

It is kept in the run folder until the run is over, so that a run that goes on elsewhere, where
sums are rounded in another way, reads the same words.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from thinrnn._files import write_safely
from thinrnn._model.tree import map_tensors, tensors_in
from thinrnn.errors import RunError
from thinrnn.lab.device.arithmetic import arithmetic
from thinrnn.lab.device.graphs import GraphedStep, Step
from thinrnn.lab.device.padded import Padded
from thinrnn.lab.recipes.language_model.settings import LanguageModelSettings
from thinrnn.lab.run import RunFolder
from thinrnn.lab.run.files import storage
from thinrnn.lab.run.progress import Progress

FILE = "scratch/written.safetensors"


def with_written(
    streams: Tensor,
    teacher: nn.Module,
    settings: LanguageModelSettings,
    run: RunFolder,
    progress: Progress,
) -> Tensor:
    """Return the streams (L, B) and what the teacher writes, or wrote before: (L, 1 + k, B)."""
    file, (length, batch) = run.path / FILE, streams.shape
    if file.exists():
        written = _read(file, (length, settings.written, batch)).to(streams)
        return torch.cat([streams.unsqueeze(1), written], 1)
    texts = "a text" if settings.written == 1 else f"{settings.written} texts"
    progress.line(f"the teacher writes {texts} of {streams.numel():,} tokens")
    written = write(teacher, streams, settings)
    with storage(file):
        file.parent.mkdir(exist_ok=True)
        tensors = {"tokens": written.cpu()}
        write_safely(file, lambda temporary: save_file(tensors, temporary))
    return torch.cat([streams.unsqueeze(1), written], 1)


def in_shares(texts: Tensor) -> Tensor:
    """Return texts (L, n, B, ...) below one another, every window with a share of each.

    Streams begin at different places.
    """
    all_of_them = texts.transpose(0, 1).flatten(0, 1)
    rows, batch = all_of_them.shape[:2]
    streams = torch.arange(batch, device=texts.device)
    places = torch.arange(rows, device=texts.device).unsqueeze(1) + streams * rows // batch
    return all_of_them[places % rows, streams]


@torch.no_grad()
def write(teacher: nn.Module, streams: Tensor, settings: LanguageModelSettings) -> Tensor:
    """Return the texts (L, k, B), each going on after the last words of the streams (L, B)."""
    (length, batch), texts = streams.shape, settings.written
    generator = torch.Generator().manual_seed(settings.seed)
    # One number for each word, drawn beforehand: the same ones on every device.
    dice = torch.rand(length, texts * batch, generator=generator).to(streams.device)
    words = streams[-1:].long().repeat(1, texts)  # (1, k B)
    written = streams.new_empty(length, texts * batch)
    state: Any = None
    teacher.eval()

    def next_words(numbers: Tensor) -> None:
        nonlocal state
        with arithmetic(settings.precision, streams.device), Padded():
            logits, new = teacher(words, state)  # (1, k B, V)
        words.copy_(draw(logits[0], numbers))
        if state is None:
            state = map_tensors(new, torch.clone)
        else:  # in place: a CUDA graph reads and writes the same tensors each time
            for old, value in zip(tensors_in(state), tensors_in(new), strict=True):
                old.copy_(value)

    run: Step = next_words
    for row in range(length):
        if streams.is_cuda and settings.cuda_graphs and row == 1:  # there is a state now
            run = GraphedStep(next_words, dice[row])
        run(dice[row])
        written[row] = words[0]
    return written.view(length, texts, batch)


def draw(logits: Tensor, numbers: Tensor) -> Tensor:
    """Return a word for each row of logits (N, V), drawn by a number (N,) between 0 and 1."""
    reached = logits.float().softmax(-1).cumsum(-1)
    wanted = (numbers * reached[:, -1]).unsqueeze(1)
    found = torch.searchsorted(reached, wanted, right=True).squeeze(1)
    return found.clamp(max=logits.shape[-1] - 1)


def _read(file: Path, shape: tuple[int, ...]) -> Tensor:
    try:
        tokens = load_file(file)["tokens"]
    except (OSError, KeyError, SafetensorError) as error:
        raise RunError(
            f"cannot read {file} ({error}): remove it, and it will be written again."
        ) from None
    if tokens.shape != shape:
        raise RunError(f"{file} belongs to another run: remove it, and it will be written again.")
    return tokens
