"""A pretrained voice detector with a half and a quarter of its neurons, without training data.

    pip install --no-deps silero-vad    # convolutions and an LSTM of 128 with their weights
    python examples/pretrained/voice_detector.py

Windows of 32 ms go in, the probability that someone speaks comes out. No labels are needed: the
calibration data is speech in noise. The test has other speakers and other noise; there the truth
is known, because the speech was clean before noise was added.
"""

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from audio import RATE, auc, milliseconds, parted, show, speakers
from safetensors.torch import load_file
from torch import Tensor, nn

import thinrnn

WINDOW, BEFORE, AFTER = 512, 64, 64  # samples of a window, of the one before, and mirrored
HEARD, UNHEARD = ("white", "hum", "clicks"), ("pink", "whistles", "rumble")  # kinds of noise
LOUD = 0.02  # speech: windows whose loudness is above this part of the loudest


class VoiceDetector(nn.Module):
    """The network of silero-vad at 16 kHz: windows (B, T, 576) to probabilities (B, T).

    A window begins with the last 64 samples of the one before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.conv1 = nn.Conv1d(129, 128, 3, padding=1)
        self.conv2 = nn.Conv1d(128, 64, 3, stride=2, padding=1)
        self.conv3 = nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.conv4 = nn.Conv1d(64, 128, 3, padding=1)
        self.lstm = nn.LSTM(128, 128, batch_first=True)
        self.final_conv = nn.Conv1d(128, 1, 1)

    def forward(self, windows: Tensor) -> Tensor:
        batch, steps, _ = windows.shape
        x = nn.functional.pad(windows.flatten(0, 1), (0, AFTER), mode="reflect").unsqueeze(1)
        real, imaginary = self.stft_conv(x).split(129, dim=1)
        x = (real.square() + imaginary.square()).sqrt()
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = torch.relu(conv(x))
        h, _ = self.lstm(x.view(batch, steps, -1))  # (B, T, n)
        h = torch.relu(h).transpose(1, 2)
        return torch.sigmoid(self.final_conv(h)).squeeze(1)


def pretrained() -> VoiceDetector:
    """Return the detector with the weights that the package silero-vad brings as safetensors.

    They come from another training than those of the package's JIT and ONNX models, so outputs
    differ from theirs; with their weights this module computes what they compute. The package runs
    an LSTM cell, window by window; the same weights serve a layer over a whole sequence.
    """
    found = importlib.util.find_spec("silero_vad")
    if found is None or found.origin is None:
        sys.exit("silero-vad is not installed: pip install --no-deps silero-vad")
    file = Path(found.origin).parent / "data/silero_vad_16k.safetensors"
    detector = VoiceDetector()
    detector.load_state_dict({layer_name(name): w for name, w in load_file(file).items()})
    return detector.eval()


def layer_name(name: str) -> str:
    """Return the name of a weight where the LSTM cell has become a layer.

    >>> layer_name("lstm_cell.weight_ih"), layer_name("conv1.bias")
    ('lstm.weight_ih_l0', 'conv1.bias')
    """
    return name.replace("lstm_cell.", "lstm.") + "_l0" * name.startswith("lstm_cell.")


def noise(kind: str, samples: int, random: np.random.Generator) -> np.ndarray:
    """Return noise of a kind, with a mean square of 1."""
    times = np.arange(samples) / RATE
    if kind == "white":
        made = random.standard_normal(samples)
    elif kind in ("pink", "rumble"):
        falls = 0.5 if kind == "pink" else 1.0  # of the amplitude with the frequency
        spectrum = np.fft.rfft(random.standard_normal(samples))
        spectrum[1:] /= np.arange(1, len(spectrum)) ** falls
        made = np.fft.irfft(spectrum, samples)
    elif kind == "hum":
        pitch = random.uniform(50, 120)
        made = sum(np.sin(2 * np.pi * pitch * n * times) / n for n in range(1, 8))
    elif kind == "whistles":
        pitch = np.cumsum(random.standard_normal(samples // 160 + 1))
        pitch = 1500 + 80 * np.interp(times * 100, np.arange(len(pitch)), pitch)
        made = np.sin(2 * np.pi * np.cumsum(pitch) / RATE)
    else:
        made = random.standard_normal(samples) * 0.05
        for place in random.integers(0, max(samples - 400, 1), samples // 4000 + 1):
            made[place : place + 400] += random.standard_normal(400) * np.exp(-np.arange(400) / 60)
    return made / np.sqrt(np.mean(made**2))


def scene(
    waves: list[np.ndarray], kinds: tuple[str, ...], seed: int, seconds: float = 12.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return speech with pauses in noise, and which windows have speech."""
    random = np.random.default_rng(seed)
    clean = np.zeros(int(seconds * RATE), np.float32)
    place = int(random.uniform(0.2, 2) * RATE)
    for wave in waves:
        wave = wave[: max(0, len(clean) - place)]
        clean[place : place + len(wave)] = wave
        place += len(wave) + int(random.uniform(0.5, 3) * RATE)
    clean = clean / max(float(np.abs(clean).max()), 1e-6) * random.uniform(0.1, 0.5)
    loudness = np.sqrt((clean[: len(clean) // WINDOW * WINDOW].reshape(-1, WINDOW) ** 2).mean(1))
    speaks = loudness > LOUD * loudness.max()
    level = np.sqrt(np.mean(clean[np.abs(clean) > 0] ** 2)) * 10 ** (-random.uniform(0, 10) / 20)
    added = noise(str(random.choice(kinds)), len(clean), random) * level
    return (clean + added).astype(np.float32), speaks


def windows(wave: np.ndarray) -> Tensor:
    """Return the windows of a sound, each with the end of the one before (1, T, 576)."""
    padded = torch.from_numpy(np.concatenate([np.zeros(BEFORE, np.float32), wave]))
    return padded.unfold(0, WINDOW + BEFORE, WINDOW).unsqueeze(0)


def scenes(
    spoken: dict[str, list[np.ndarray]], kinds: tuple[str, ...], seed: int
) -> tuple[Tensor, Tensor]:
    """Return one scene of each speaker (B, T, 576), and which windows have speech (B, T)."""
    made = [scene(waves, kinds, seed + i) for i, waves in enumerate(spoken.values())]
    sounds = torch.cat([windows(sound) for sound, _ in made])
    return sounds, torch.from_numpy(np.stack([speaks for _, speaks in made]))[:, : sounds.shape[1]]


@torch.inference_mode()
def quality(
    detector: nn.Module, original: nn.Module, sounds: Tensor, truth: Tensor
) -> dict[str, Any]:
    """Return how well a detector tells speech from noise, and how often it agrees with another."""
    found, expected = detector(sounds), original(sounds)
    agree = ((found > 0.5) == (expected > 0.5)).float().mean()
    params = thinrnn.count(detector).params
    return {
        "params": params,
        "auc": auc(found.flatten(), truth.flatten()),
        "agreement": float(agree),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wavs", type=Path, help="folder with a folder of wav files per speaker")
    parser.add_argument("--parts", type=float, nargs="+", default=[0.75, 0.5, 0.33, 0.25])
    parser.add_argument("--steps", type=int, default=150, help="of distillation")
    options = parser.parse_args()
    detector = pretrained()
    calls, example, test = material(speakers(options.wavs))
    models = smaller(detector, calls, options.parts, options.steps)
    times = milliseconds(models, example)
    show({name: quality(one, detector, *test) | times[name] for name, one in models.items()})


def material(
    spoken: dict[str, list[np.ndarray]],
) -> tuple[list[Tensor], Tensor, tuple[Tensor, Tensor]]:
    """Return calls to calibrate on, one second to time, and a test on other speakers and noise."""
    heard, unheard = parted(spoken)
    sounds, _ = scenes(heard, HEARD, seed=0)
    pieces = torch.cat(sounds.split(sounds.shape[1] // 4, dim=1)[:4])  # of about 3 s
    order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(0))
    test = scenes(unheard, UNHEARD, seed=1000)
    return list(pieces[order].split(4)), sounds[:1, :31], test


def smaller(
    detector: nn.Module,
    calls: list[Tensor],
    parts: list[float],
    steps: int,
    scores: tuple[str, ...] = ("reconstruct",),
) -> dict[str, nn.Module]:
    """Return the detector, and smaller ones with parts of the neurons of each group."""
    models = {"original": detector}
    plan = thinrnn.find_groups(detector, calls[0][:1, :4])
    for part in parts:
        keep = {g.name: max(1, round(part * g.size)) for g in plan if not g.is_input}
        for score in scores:
            small = thinrnn.prune(detector, calls, keep=keep, score=score, plan=plan)
            models[f"{part:.0%} {score}"] = small
        print(thinrnn.pruning_report(small), flush=True)
        if steps:
            models[f"{part:.0%} distilled"] = thinrnn.distill(
                small, detector, calls, steps=steps, lr=3e-4, outputs="binary"
            )
    return models


if __name__ == "__main__":
    main()
