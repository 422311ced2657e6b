"""A pretrained voice detector pruned to fit 64 kB, as plain C with 8-bit weights.

    pip install --no-deps silero-vad
    python -m benchmarks.voice_in_c

The detector of examples/pretrained/voice_detector.py is pruned and taught without labels. What runs
after the spectrum of a window becomes one C file: convolutions over the four frames of a window, an
LSTM cell, a probability. The spectrum is left to the caller, who has a faster way than the model's
convolution (an FFT). The C file is compiled, and judged on speakers and noise not heard before.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from benchmarks.pretrained import EXAMPLES
from benchmarks.record import medians, parser, write_record
from thinrnn import CExport, export_c
from thinrnn.c.compiled import Functions, compile_shared, pointer

sys.path.insert(0, str(EXAMPLES))
LIMIT = 64 * 1024  # bytes of flash for weights


class Window(nn.Module):
    """One window of a detector: its spectrum (1, 129, 4) and the state in, a probability out."""

    def __init__(self, detector: Any) -> None:
        super().__init__()
        self.convs = nn.ModuleList(getattr(detector, f"conv{k}") for k in range(1, 5))
        lstm, self.last = detector.lstm, detector.final_conv
        self.cell = nn.LSTMCell(lstm.input_size, lstm.hidden_size)
        weights = lstm.state_dict().items()
        self.cell.load_state_dict({name.removesuffix("_l0"): w for name, w in weights})

    def forward(self, spectrum: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = spectrum
        for conv in self.convs:
            x = torch.relu(conv(x))
        h, c = self.cell(x.flatten(1), (h, c))
        return torch.sigmoid(self.last(torch.relu(h).unsqueeze(-1))).flatten(1), h, c


def spectra(detector: Any, windows: Tensor) -> Tensor:
    """Return the spectra (B, T, 129, 4) of windows (B, T, 576)."""
    after = 64  # samples, mirrored
    x = nn.functional.pad(windows.flatten(0, 1), (0, after), mode="reflect").unsqueeze(1)
    real, imaginary = detector.stft_conv(x).split(129, dim=1)
    return (real.square() + imaginary.square()).sqrt().unflatten(0, windows.shape[:2])


class InC:
    """The compiled file, called with one spectrum after another."""

    def __init__(self, export: CExport, library: Path) -> None:
        self._step = Functions(library, export.name).step
        sizes = [*export.inputs.values(), *export.outputs.values()]
        self.spectrum, self.h, self.c, self.found, *self._next = (
            numpy.zeros(size, numpy.float32) for size in sizes
        )
        unused = numpy.zeros(1, numpy.float32)  # the state is an input and an output here
        arrays = (unused, self.spectrum, self.h, self.c, self.found, *self._next)
        self._arrays, self._pointers = arrays, [pointer(array) for array in arrays]

    def __call__(self) -> float:
        self._step(*self._pointers)
        self.h[:], self.c[:] = self._next
        return float(self.found[0])

    def probabilities(self, spectra: Tensor) -> Tensor:
        """Return the probabilities (B, T) of windows (B, T, 129, 4)."""
        rows = []
        for scene in spectra.detach().numpy():
            self.h[:] = self.c[:] = 0
            row = []
            for window in scene:
                self.spectrum[:] = window.ravel()
                row.append(self())
            rows.append(row)
        return torch.tensor(rows)


def main() -> None:
    made = parser(__doc__, "voice-in-c-cpu.json")
    made.add_argument("--part", type=float, default=0.4, help="of the neurons of each group")
    made.add_argument("--steps", type=int, default=150, help="of distillation")
    made.add_argument("--utterances", type=int, default=6, help="of each speaker")
    made.add_argument("--rounds", type=int, default=11)
    options: argparse.Namespace = made.parse_args()
    import audio
    import voice_detector

    torch.manual_seed(0)
    torch.set_num_threads(1)
    original = voice_detector.pretrained()
    calls, one, (sounds, truth) = voice_detector.material(
        audio.speakers(utterances=options.utterances)
    )
    *_, small = voice_detector.smaller(original, calls, [options.part], options.steps).values()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "voice.c"
        width = small.lstm.hidden_size
        spectrum = spectra(small, one[:, :1])[0]
        example = (spectrum, torch.randn(1, width), torch.randn(1, width))
        export = export_c(Window(small), path, example, precision="int8")
        library = path.with_suffix(".so")
        compile_shared(path, library, "-O3", "-march=native")
        in_c = InC(export, library)
        found = in_c.probabilities(spectra(small, sounds))
        expected = original(sounds)
        rows = {
            "original": voice_detector.quality(original, original, sounds, truth),
            "small": voice_detector.quality(small, original, sounds, truth),
            "small in C, int8": {
                "auc": audio.auc(found.flatten(), truth.flatten()),
                "agreement": float(((found > 0.5) == (expected > 0.5)).float().mean()),
            },
        }
        window = one[:, :1]
        times = medians(
            {
                "original": lambda: original(window),
                "small": lambda: small(window),
                "spectrum in PyTorch": lambda: spectra(small, window),
                "small in C, int8": in_c,
            },
            options.rounds,
            now=time.thread_time,
        )
        sections = code_size(path)
    print(rows, export, sections, sep="\n", flush=True)
    if export.flash > LIMIT:
        print(f"{export.flash:,} bytes are more than {LIMIT:,}: take a smaller --part")
    write_record(
        "a pruned voice detector as plain C: bytes, quality on unheard speech, microseconds "
        "of CPU time per window",
        options,
        flash=export.flash,
        ram=export.ram,
        code=sections,
        hidden=width,
        difference=export.difference,
        rounding=export.rounding,
        quality=rows,
        microseconds={name: round(1000 * value, 1) for name, value in times.items()},
    )


def code_size(path: Path) -> int | None:
    """Return the bytes of machine code, without the weights, compiled for size."""
    if shutil.which("size") is None:
        return None
    compiled = path.with_suffix(".o")
    subprocess.run(["cc", "-Os", "-std=c99", "-c", str(path), "-o", str(compiled)], check=True)
    done = subprocess.run(["size", "-A", str(compiled)], check=True, capture_output=True, text=True)
    parts = [line.split() for line in done.stdout.splitlines() if line.startswith(".text")]
    return sum(int(part[1]) for part in parts)


if __name__ == "__main__":
    main()
