"""A pretrained speaker encoder at a half and a quarter of its size, without training data.

    pip install --no-deps resemblyzer    # three LSTM layers of 256 with their weights
    python examples/pretrained/speaker_encoder.py

Mel frames go in, one vector per utterance comes out; two vectors of one speaker point the same
way. No labels are needed: the calibration data is speech of any kind.
"""

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from audio import RATE, auc, milliseconds, parted, show, speakers
from torch import Tensor, nn

import thinrnn

FRAMES = 160  # in an utterance of 1.6 s, as in training
PITCHES = (50, 30, 70, 40, 60, 20, 80, 90)  # more voices to calibrate on, from the same speakers
STEP, WINDOW, MELS = RATE // 100, RATE // 40, 40


class SpeakerEncoder(nn.Module):
    """The network of resemblyzer: mel frames (B, T, 40) to unit vectors (B, 256)."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(MELS, 256, num_layers=3, batch_first=True)
        self.linear = nn.Linear(256, 256)

    def forward(self, mels: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(mels)
        return unit(self.linear(hidden[-1]))


class AllFrames(nn.Module):
    """What an encoder has found after each frame, and its vector: more to learn from."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, mels: Tensor) -> tuple[Tensor, Tensor]:
        found = self.encoder.linear(self.encoder.lstm(mels)[0])  # (B, T, 256)
        return found, unit(found[:, -1])


def unit(found: Tensor) -> Tensor:
    """Return vectors (B, 256) of length 1."""
    embedding = torch.relu(found)
    return embedding / embedding.norm(dim=1, keepdim=True)


def pretrained() -> SpeakerEncoder:
    """Return the encoder with the weights that the package resemblyzer brings."""
    found = importlib.util.find_spec("resemblyzer")
    if found is None or found.origin is None:
        sys.exit("resemblyzer is not installed: pip install --no-deps resemblyzer")
    file = Path(found.origin).with_name("pretrained.pt")
    weights = torch.load(file, map_location="cpu", weights_only=True)["model_state"]
    encoder = SpeakerEncoder()
    encoder.load_state_dict({k: v for k, v in weights.items() if "similarity" not in k})
    return encoder.eval()


def mel_frames(wave: np.ndarray) -> Tensor:
    """Return the mel spectrogram (T, 40) that the encoder was trained on; loudness is set first."""
    wave = wave * (10 ** (-30 / 20) / max(float(np.sqrt(np.mean(wave**2))), 1e-6))
    spectrum = torch.stft(
        torch.from_numpy(wave.astype(np.float32)),
        WINDOW,
        STEP,
        window=torch.hann_window(WINDOW),
        pad_mode="constant",
        return_complex=True,
    )
    return (mel_filters() @ spectrum.abs().square()).T


def mel_filters() -> Tensor:
    """Return Slaney's mel filters (40, frequencies): triangles of equal area."""

    def hertz(mel: np.ndarray) -> np.ndarray:
        linear = 200 / 3 * mel
        return np.where(mel < 15, linear, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))

    top = 15 + 27 * np.log(RATE / 2 / 1000) / np.log(6.4)
    edges = hertz(np.linspace(0, top, MELS + 2))  # (42,)
    frequencies = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    up = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    down = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    filters = np.clip(np.minimum(up, down), 0, None) * (2 / (edges[2:] - edges[:-2]))[:, None]
    return torch.from_numpy(filters.astype(np.float32))


def windows(waves: list[np.ndarray]) -> Tensor:
    """Return all windows of 1.6 s, half overlapping, of some utterances (N, 160, 40)."""
    frames = [mel_frames(wave) for wave in waves]
    cut = [f[i : i + FRAMES] for f in frames for i in range(0, len(f) - FRAMES + 1, FRAMES // 2)]
    return torch.stack(cut)


def quality(encoder: nn.Module, original: nn.Module, voices: dict[str, Tensor]) -> dict[str, Any]:
    """Return how near the vectors are to the original's, and how well they tell speakers apart."""
    with torch.inference_mode():
        found = {name: encoder(mels) for name, mels in voices.items()}
        cosine = torch.cat([(found[n] * original(m)).sum(1) for n, m in voices.items()])
    vectors = torch.cat(list(found.values()))
    owner = torch.tensor([i for i, v in enumerate(found.values()) for _ in v])
    alike = (vectors @ vectors.T)[torch.triu(torch.ones(len(vectors), len(vectors)), 1) > 0]
    same = (owner[:, None] == owner)[torch.triu(torch.ones(len(owner), len(owner)), 1) > 0]
    return {
        "params": thinrnn.count(encoder).params,
        "cosine": float(cosine.mean()),
        "same_speaker": float(alike[same].mean()),
        "other_speaker": float(alike[~same].mean()),
        "auc": auc(alike, same),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wavs", type=Path, help="folder with a folder of wav files per speaker")
    parser.add_argument("--sizes", type=float, nargs="+", default=[0.5, 0.25])
    parser.add_argument("--steps", type=int, default=300, help="of distillation")
    options = parser.parse_args()
    encoder = pretrained()
    calls, example, test = material(speakers(options.wavs, pitches=PITCHES))
    models = smaller(encoder, calls, options.sizes, options.steps, ("reconstruct", "sequential"))
    times = milliseconds(models, example)
    show({name: quality(one, encoder, test) | times[name] for name, one in models.items()})


def material(
    spoken: dict[str, list[np.ndarray]],
) -> tuple[list[Tensor], Tensor, dict[str, Tensor]]:
    """Return calls to calibrate on, one utterance to time, and a test on the other speakers."""
    heard, unheard = parted(spoken)
    mels = windows([wave for waves in heard.values() for wave in waves])
    order = torch.randperm(len(mels), generator=torch.Generator().manual_seed(0))
    test = {name: windows(waves) for name, waves in unheard.items()}
    return list(mels[order].split(32)), mels[:1], test


def smaller(
    encoder: nn.Module,
    calls: list[Tensor],
    sizes: list[float],
    steps: int,
    scores: tuple[str, ...] = ("reconstruct",),
) -> dict[str, nn.Module]:
    """Return the encoder, and smaller ones with parts of its parameters.

    "sequential" is "reconstruct" with a second pass of refitting, from which distillation begins.
    """
    models = {"original": encoder}
    for size in sizes:
        for score in scores:
            name = "reconstruct" if score == "sequential" else score
            is_twice = score == "sequential"
            small = thinrnn.prune(encoder, calls, params=size, score=name, sequential=is_twice)
            models[f"{size:.0%} {score}"] = small
        print(thinrnn.pruning_report(small), flush=True)
        if steps:
            taught = thinrnn.distill(
                AllFrames(small), AllFrames(encoder), calls, steps=steps, lr=2e-3
            )
            models[f"{size:.0%} distilled"] = taught.encoder
    return models


if __name__ == "__main__":
    main()
