"""What the examples share: speech, a score, the time that models take.

Speech to calibrate and test on is spoken by espeak-ng, or read from a folder of wav files.

A folder holds one folder per speaker, with mono wav files of 16 bits at any rate.
"""

import itertools
import random
import re
import shutil
import subprocess
import sys
import tempfile
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import thinrnn

RATE = 16_000
ACCENTS = ("en-us", "en-gb", "en-gb-scotland", "en-029", "en-us-nyc", "en-gb-x-rp")
TIMBRES = (
    *("adam", "Alicia", "Andrea", "Andy", "Annie", "belinda", "benjamin", "boris", "caleb"),
    *("david", "Denis", "Diogo", "ed", "Gene", "Gustave", "Hugo", "iven", "Jacky"),
    *("john", "Lee", "linda", "marcelo", "Marco", "Michael", "anika", "antonio", "aunty"),
    *("edward", "f1", "f2", "f3", "f4", "f5", "grandma", "grandpa", "Henrique"),
    *("iven2", "iven3", "kaukovalta", "klatt", "klatt3", "m1", "m2", "m3", "m4"),
    *("m5", "m6", "m7", "m8", "Mario", "max", "miguel", "Nguyen", "norbert"),
    *("pablo", "paul", "pedro", "quincy", "rob", "robert", "sandro", "shelby", "steph"),
    *("travis",),
)
VOICES = [f"{accent}+{one}" for accent, one in zip(itertools.cycle(ACCENTS), TIMBRES)]
HELD_OUT = 4  # every fourth speaker is for the test
PITCH = 50  # of a voice, as espeak-ng counts it


def speakers(
    folder: Path | None = None,
    *,
    utterances: int = 6,
    seed: int = 0,
    pitches: Sequence[int] = (PITCH,),
) -> dict[str, list[np.ndarray]]:
    """Return a few utterances of each speaker, as float32 waveforms at 16 kHz.

    Synthetic speakers to calibrate on take turns with the pitches; those of the test keep theirs.
    """
    if folder is not None:
        return {
            one.name: [read_wav(file) for file in sorted(one.glob("*.wav"))[:utterances]]
            for one in sorted(folder.iterdir())
            if one.is_dir()
        }
    if shutil.which("espeak-ng") is None:
        sys.exit("espeak-ng is not installed: install it, or name a folder of wav files.")
    lines = itertools.cycle(sentences(seed))
    made = {}
    for place, voice in enumerate(VOICES, 1):
        turns = itertools.cycle(pitches if place % HELD_OUT else (PITCH,))
        made[voice] = [spoken(voice, next(lines), next(turns)) for _ in range(utterances)]
    return made


def parted(
    spoken: dict[str, list[np.ndarray]],
) -> tuple[dict[str, list[np.ndarray]], dict[str, list[np.ndarray]]]:
    """Return the speakers to calibrate on, and those of the test."""
    test = {name: spoken[name] for name in list(spoken)[HELD_OUT - 1 :: HELD_OUT]}
    return {name: waves for name, waves in spoken.items() if name not in test}, test


def sentences(seed: int) -> list[str]:
    """Return English sentences from the reference that comes with Python, in random order."""
    from pydoc_data.topics import topics

    found = re.findall(r"[A-Z][a-z ,]{60,140}\.", " ".join(" ".join(topics.values()).split()))
    random.Random(seed).shuffle(found)
    return found


def spoken(voice: str, text: str, pitch: int = PITCH) -> np.ndarray:
    """Return a text as espeak-ng says it."""
    command = ["espeak-ng", "-v", voice, "-p", str(pitch), "--stdout", text]
    sound = subprocess.run(command, check=True, capture_output=True).stdout
    samples = np.frombuffer(sound[44:], dtype="<i2").astype(np.float32) / 2**15
    return resampled(samples, int.from_bytes(sound[24:28], "little"))


def read_wav(file: Path) -> np.ndarray:
    """Return a wav file of 16 bits, its first channel, at 16 kHz."""
    with wave.open(str(file)) as sound:
        if sound.getsampwidth() != 2:
            sys.exit(f"{file} has {8 * sound.getsampwidth()} bits; give wav files of 16 bits.")
        samples = np.frombuffer(sound.readframes(sound.getnframes()), dtype="<i2")
        first = samples[:: sound.getnchannels()].astype(np.float32) / 2**15
        return resampled(first, sound.getframerate())


def resampled(samples: np.ndarray, rate: int) -> np.ndarray:
    """Return samples at 16 kHz, by straight lines between them."""
    if rate == RATE:
        return samples
    times = np.arange(0, len(samples) - 1, rate / RATE)
    return np.interp(times, np.arange(len(samples)), samples).astype(np.float32)


def auc(scores: Tensor, truth: Tensor) -> float:
    """Return the area under the ROC curve: how often a true one scores above a false one."""
    ranks = torch.empty(len(scores), dtype=torch.double)
    ranks[scores.argsort()] = torch.arange(1, len(scores) + 1, dtype=torch.double)
    positive, negative = int(truth.sum()), int((~truth).sum())
    return (float(ranks[truth].sum()) - positive * (positive + 1) / 2) / (positive * negative)


def milliseconds(models: dict[str, nn.Module], example: Tensor) -> dict[str, dict[str, float]]:
    """Return how long one call takes on one thread, in PyTorch and in ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    calls: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for place, (name, model) in enumerate(models.items()):
            calls[f"{name} pytorch_ms"] = model
            file = thinrnn.export_onnx(model, Path(folder) / f"{place}.onnx", example).path
            session = onnxruntime.InferenceSession(str(file), options)
            feed = {session.get_inputs()[0].name: example.numpy()}
            calls[f"{name} onnx_ms"] = lambda x, session=session, feed=feed: session.run(None, feed)
        times = thinrnn.benchmark(calls, example, seconds=1.0)
    return {
        name: {key: times[f"{name} {key}"].median for key in ("pytorch_ms", "onnx_ms")}
        for name in models
    }


def show(rows: dict[str, dict[str, Any]]) -> None:
    """Print a row of figures for each model."""
    for name, row in rows.items():
        cells = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v:,}" for k, v in row.items())
        print(name, *cells, sep="  ")
