"""The examples with pretrained models, on short sounds; where the packages are installed."""

import importlib
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import thinrnn

# the parts of silero-vad's own model, and what they are in the example
VAD_PARTS = {
    "stft.forward_basis_buffer": "stft_conv.weight",
    **{f"encoder.{i}.reparam_conv": f"conv{i + 1}" for i in range(4)},
    "decoder.rnn": "lstm_cell",
    "decoder.decoder.2": "final_conv",
}


@pytest.fixture
def example(request, pytestconfig, monkeypatch):
    """Import a file of the folder, which needs a package with weights."""
    package, name = request.param
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    monkeypatch.syspath_prepend(str(pytestconfig.rootpath / "examples/pretrained"))
    yield importlib.import_module(name)
    for module in ("audio", name):
        sys.modules.pop(module, None)


def voices(seconds: float) -> dict[str, list[np.ndarray]]:
    """Sounds with pitch and overtones, eight speakers."""
    random, found = np.random.default_rng(0), {}
    for speaker in "abcdefgh":
        times = np.arange(int(seconds * 16_000)) / 16_000
        pitch = random.uniform(80, 250) * (1 + 0.1 * np.sin(2 * np.pi * 3 * times))
        phase = 2 * np.pi * np.cumsum(pitch) / 16_000
        sound = sum(np.sin(n * phase) * random.uniform(0.1, 1) for n in range(1, 20))
        sound *= np.abs(np.sin(2 * np.pi * 2 * times))
        found[speaker] = [(0.02 * sound + 1e-4 * random.standard_normal(len(times))).astype("f4")]
    return found


@pytest.mark.parametrize("example", [("resemblyzer", "speaker_encoder")], indirect=True)
def test_a_speaker_encoder_loses_half_of_its_parameters(example):
    encoder = example.pretrained()
    calls, one, test = example.material(voices(4.0))
    models = example.smaller(encoder, calls[:3], [0.5], steps=2)
    full = thinrnn.count(encoder).params
    assert list(models) == ["original", "50% reconstruct", "50% distilled"]
    for model in models.values():
        found = example.quality(model, encoder, test)
        assert found["cosine"] > 0.5 and model(one).shape == (1, 256)
    assert 0.49 * full < thinrnn.count(models["50% distilled"]).params <= 0.5 * full


@pytest.mark.parametrize("example", [("silero_vad", "voice_detector")], indirect=True)
def test_a_voice_detector_loses_half_of_its_neurons(example):
    detector = example.pretrained()
    calls, one, test = example.material(voices(3.0))
    models = example.smaller(detector, calls, [0.5], steps=0)
    assert models["50% reconstruct"].lstm.hidden_size == 64
    assert example.quality(models["50% reconstruct"], detector, *test)["agreement"] > 0.5
    assert models["50% reconstruct"](one).shape == (1, 31)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TorchScript
@pytest.mark.parametrize("example", [("silero_vad", "voice_detector")], indirect=True)
def test_the_voice_detector_computes_what_the_package_computes(example):
    folder = Path(importlib.util.find_spec("silero_vad").origin).parent
    package = torch.jit.load(str(folder / "data/silero_vad.jit"), map_location="cpu").eval()
    detector = example.pretrained()
    detector.load_state_dict(
        {
            example.layer_name(name.replace(part, own)): tensor
            for name, tensor in package._model.state_dict().items()
            for part, own in VAD_PARTS.items()
            if name.startswith(part)
        }
    )
    sound = voices(4.0)["a"][0] * 5
    with torch.inference_mode():
        found = detector(example.windows(sound))[0]
        pieces = torch.from_numpy(sound)[: len(found) * 512].split(512)
        expected = torch.cat([package(piece[None], 16_000)[0] for piece in pieces])
    assert expected.max() - expected.min() > 0.01
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0.0)
