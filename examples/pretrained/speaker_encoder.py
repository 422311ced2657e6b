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
from audio import RATE, speakers
from torch import Tensor, nn

import thinrnn

FRAMES = 160  # in an utterance of 1.6 s, as in training
STEP, WINDOW, MELS = RATE // 100, RATE // 40, 40


class SpeakerEncoder(nn.Module):
    """The network of resemblyzer: mel frames (B, T, 40) to unit vectors (B, 256)."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(MELS, 256, num_layers=3, batch_first=True)
        self.linear = nn.Linear(256, 256)

    def forward(self, mels: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(mels)
        embedding = torch.relu(self.linear(hidden[-1]))
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


def quality(encoder: nn.Module, original: nn.Module, voices: dict[str, Tensor]) -> dict[str, float]:
    """Return how near the vectors are to the original's, and how well they tell speakers apart."""
    with torch.inference_mode():
        found = {name: encoder(mels) for name, mels in voices.items()}
        cosine = torch.cat([(found[n] * original(m)).sum(1) for n, m in voices.items()])
    vectors = torch.cat(list(found.values()))
    owner = torch.tensor([i for i, v in enumerate(found.values()) for _ in v])
    alike = (vectors @ vectors.T)[torch.triu(torch.ones(len(vectors), len(vectors)), 1) > 0]
    same = (owner[:, None] == owner)[torch.triu(torch.ones(len(owner), len(owner)), 1) > 0]
    return {
        "cosine": float(cosine.mean()),
        "same_speaker": float(alike[same].mean()),
        "other_speaker": float(alike[~same].mean()),
        "auc": auc(alike, same),
    }


def auc(scores: Tensor, truth: Tensor) -> float:
    """Return the area under the ROC curve: how often a true pair scores above a false one."""
    ranks = torch.empty(len(scores), dtype=torch.double)
    ranks[scores.argsort()] = torch.arange(1, len(scores) + 1, dtype=torch.double)
    positive, negative = int(truth.sum()), int((~truth).sum())
    return (float(ranks[truth].sum()) - positive * (positive + 1) / 2) / (positive * negative)


def main() -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wavs", type=Path, help="folder with a folder of wav files per speaker")
    parser.add_argument("--sizes", type=float, nargs="+", default=[0.5, 0.25])
    parser.add_argument("--steps", type=int, default=300, help="of distillation")
    options = parser.parse_args()
    return compare(speakers(options.wavs), options.sizes, options.steps)


def compare(
    spoken: dict[str, list[np.ndarray]], sizes: list[float], steps: int
) -> list[dict[str, Any]]:
    """Prune to each size, calibrated on half of the speakers and tested on the others."""
    torch.manual_seed(0)
    encoder = pretrained()
    names = list(spoken)
    known, unknown = names[::2], names[1::2]
    mels = windows([wave for name in known for wave in spoken[name]])
    calls = list(mels[torch.randperm(len(mels))].split(16))
    test = {name: windows(spoken[name]) for name in unknown}
    example = next(iter(test.values()))[:1]  # one utterance: a stream of requests
    rows = [{"model": "original", "params": thinrnn.count(encoder).params}]
    rows[0] |= quality(encoder, encoder, test)
    models: dict[str, nn.Module] = {"original": encoder}
    for size in sizes:
        small = thinrnn.prune(encoder, calls, params=size)
        print(thinrnn.pruning_report(small), flush=True)
        taught = thinrnn.distill(small, encoder, calls, steps=steps)
        for how, one in {"pruned": small, "distilled": taught}.items():
            name = f"{size:.0%} {how}"
            models[name] = one
            row = {"model": name, "params": thinrnn.count(one).params}
            rows.append(row | quality(one, encoder, test))
    times = thinrnn.benchmark(models, example, seconds=1.0)
    for row in rows:
        row["milliseconds"] = times[str(row["model"])].median
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{v}" for k, v in row.items()))
    return rows


if __name__ == "__main__":
    main()
