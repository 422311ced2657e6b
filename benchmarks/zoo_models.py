"""Recurrent models of packages on PyPI, with random weights and one example call each.

Sizes are those of the package's own defaults where they are small, and smaller ones elsewhere.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class ZooModel:
    """A model of a package: what to install, how to build it, and the states among its results."""

    name: str
    area: str
    build: Callable[[], tuple[nn.Module, Any]]
    packages: tuple[str, ...]  # the first is the one that the model is from
    options: dict[str, Any] = field(default_factory=dict)  # of find_groups


# What the packages import in their turn, and what is small enough to install.
NEEDED = (
    *("scipy", "scikit-learn", "joblib", "threadpoolctl", "narwhals", "lazy_loader", "msgpack"),
    *("cffi", "pycparser", "sentencepiece", "numba", "llvmlite", "audioread", "pooch", "mido"),
    *("shapely", "scikit-image", "imageio", "tifffile", "networkx", "python-bidi", "pyclipper"),
    *("langdetect", "h5py", "lxml", "iso639-lang", "lightning", "pytorch-lightning"),
    *("lightning-utilities", "torchmetrics", "referencing", "rpds-py", "attrs"),
    "jsonschema-specifications",
)

ZOO: dict[str, ZooModel] = {}
OPERATORS = torch.library.Library("torchvision", "FRAGMENT")  # which its import looks for
for operator in ("nms", "qnms"):
    OPERATORS.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
Build = Callable[[], tuple[nn.Module, Any]]


def zoo(name: str, area: str, *packages: str, **options: Any) -> Callable[[Build], Build]:
    """Add a function that returns a model and an example to the zoo."""

    def register(build: Build) -> Build:
        ZOO[name] = ZooModel(name, area, build, packages, options)
        return build

    return register


def floats(*shape: int) -> Tensor:
    return torch.randn(*shape)


@zoo("VoiceEncoder", "audio", "resemblyzer", "librosa", "webrtcvad")
def voice_encoder() -> tuple[nn.Module, Any]:
    from resemblyzer.voice_encoder import VoiceEncoder

    return VoiceEncoder("cpu", verbose=False), floats(3, 20, 40)


@zoo("OpenUnmix", "audio", "openunmix", "torchaudio")
def open_unmix() -> tuple[nn.Module, Any]:
    from openunmix.model import OpenUnmix

    return OpenUnmix(nb_bins=65, nb_channels=2, hidden_size=64, nb_layers=3), floats(
        2, 2, 65, 12
    ).abs()


@zoo("Demucs v2", "audio", "demucs", "julius", "dora-search")
def demucs() -> tuple[nn.Module, Any]:
    from demucs.demucs import Demucs

    model = Demucs(["a", "b"], channels=8, depth=4, lstm_layers=2, dconv_mode=0, norm_starts=9)
    return model, floats(2, 2, 2048)


@zoo("Demucs v3", "audio", "demucs", "julius", "dora-search")
def hybrid_demucs() -> tuple[nn.Module, Any]:
    from demucs.hdemucs import HDemucs

    model = HDemucs(["a", "b"], channels=8, depth=6, nfft=1024, dconv_lstm=4, dconv_attn=9)
    return model, floats(1, 2, 8192)


@zoo("Tacotron 2", "audio", "torchaudio")
def tacotron() -> tuple[nn.Module, Any]:
    from torchaudio.models import Tacotron2

    model = Tacotron2(
        n_mels=20,
        n_symbol=30,
        symbol_embedding_dim=64,
        encoder_embedding_dim=64,
        attention_rnn_dim=64,
        decoder_rnn_dim=64,
        prenet_dim=32,
        postnet_embedding_dim=64,
        attention_hidden_dim=32,
    )
    lengths = torch.tensor([9, 7])
    return model, (torch.randint(30, (2, 9)), lengths, floats(2, 20, 6), torch.tensor([6, 5]))


@zoo("WaveRNN", "audio", "torchaudio")
def wavernn() -> tuple[nn.Module, Any]:
    from torchaudio.models import WaveRNN

    model = WaveRNN(
        upsample_scales=[2, 2, 2],
        n_classes=16,
        hop_length=8,
        n_res_block=2,
        n_rnn=32,
        n_fc=24,
        n_freq=10,
        n_hidden=12,
        n_output=12,
    )
    return model, (floats(2, 1, 8 * 3), floats(2, 1, 10, 7))


@zoo("DeepSpeech", "audio", "torchaudio")
def deep_speech() -> tuple[nn.Module, Any]:
    from torchaudio.models import DeepSpeech

    return DeepSpeech(n_feature=20, n_hidden=48, n_class=12), floats(2, 1, 10, 20)


@zoo("RNN-T", "audio", "torchaudio")
def rnnt() -> tuple[nn.Module, Any]:
    from torchaudio.models.rnnt import RNNT, _Joiner, _Predictor, _TimeReduction

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.reduce = _TimeReduction(2)
            self.rnn = nn.LSTM(40, 32, 2, batch_first=True)

        def forward(self, input: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
            x, lengths = self.reduce(input, lengths)
            return self.rnn(x)[0], lengths

    predictor = _Predictor(
        num_symbols=20,
        output_dim=32,
        symbol_embedding_dim=24,
        num_lstm_layers=2,
        lstm_hidden_dim=28,
        lstm_layer_norm=False,
    )
    model = RNNT(Encoder(), predictor, _Joiner(32, 20))
    sources, targets = torch.tensor([12, 10]), torch.tensor([5, 4])
    return model, (floats(2, 12, 20), sources, torch.randint(20, (2, 5)), targets)


@zoo("SQUIM", "audio", "torchaudio")
def squim() -> tuple[nn.Module, Any]:
    from torchaudio.models import squim_objective_model

    model = squim_objective_model(
        feat_dim=32, win_len=16, d_model=32, nhead=2, hidden_dim=32, num_blocks=2, rnn_type="LSTM",
        chunk_size=10,
    )  # fmt: skip
    return model, floats(2, 400)


@zoo("DPRNN-TasNet", "audio", "asteroid", "asteroid-filterbanks", "torchaudio", "soundfile")
def dprnn() -> tuple[nn.Module, Any]:
    from asteroid.models import DPRNNTasNet

    model = DPRNNTasNet(
        n_src=2, n_filters=32, kernel_size=16, bn_chan=24, hid_size=20, chunk_size=10, n_repeats=2
    )
    return model, floats(2, 400)


@zoo("CRDNN", "audio", "speechbrain", "hyperpyyaml", "ruamel.yaml", "torchaudio")
def crdnn() -> tuple[nn.Module, Any]:
    from speechbrain.lobes.models.CRDNN import CRDNN

    model = CRDNN(
        input_shape=[2, 16, 20], cnn_blocks=2, cnn_channels=[8, 12], rnn_layers=2, rnn_neurons=32,
        rnn_bidirectional=True, dnn_neurons=24,
    )  # fmt: skip
    model(floats(2, 16, 20))
    return model, floats(2, 16, 20)


@zoo("Li-GRU", "audio", "speechbrain", "hyperpyyaml", "ruamel.yaml", "torchaudio")
def ligru() -> tuple[nn.Module, Any]:
    from speechbrain.nnet.RNN import LiGRU

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = LiGRU(hidden_size=24, input_shape=[2, 10, 12], num_layers=2)
            self.out = nn.Linear(24, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.rnn(x)[0])

    return Tagger(), floats(2, 10, 12)


@zoo("VGGRNN", "audio", "espnet", "typeguard", "torchaudio")
def espnet_encoder() -> tuple[nn.Module, Any]:
    from espnet2.asr.encoder.rnn_encoder import RNNEncoder

    class Recogniser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = RNNEncoder(20, num_layers=3, hidden_size=32, output_size=28)
            self.ctc = nn.Linear(28, 12)

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            out, *_ = self.encoder(x, lengths)
            return self.ctc(out)

    return Recogniser(), (floats(2, 16, 20), torch.tensor([16, 12]))


@zoo("Piano transcription", "audio", "piano-transcription-inference", "torchlibrosa", "librosa")
def piano() -> tuple[nn.Module, Any]:
    from piano_transcription_inference.models import AcousticModelCRnn8Dropout

    return AcousticModelCRnn8Dropout(classes_num=12, midfeat=1792, momentum=0.01), floats(
        1, 1, 6, 229
    )


@zoo(
    "CRNN",
    "OCR",
    "python-doctr",
    "torchvision",
    "opencv-python-headless",
    "anyascii",
    "validators",
    "rapidfuzz",
    "six",
    "pypdfium2",
)
def crnn() -> tuple[nn.Module, Any]:
    from doctr.models.recognition.crnn.pytorch import CRNN

    features = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 24, 3, 2, 1),
        nn.ReLU(),
    )
    model = CRNN(features, vocab="abcdefgh", rnn_units=32, input_shape=(3, 16, 48), exportable=True)
    return model, floats(2, 3, 16, 48)


@zoo("EasyOCR", "OCR", "easyocr", "torchvision", "opencv-python-headless")
def easyocr() -> tuple[nn.Module, Any]:
    from easyocr.model.vgg_model import Model

    return Model(1, 64, 48, 20), (floats(1, 1, 64, 60), torch.zeros(1, 4))


@zoo("VGSL", "OCR", "kraken", "coremltools", "protobuf", "cattrs")
def vgsl() -> tuple[nn.Module, Any]:
    from kraken.lib.vgsl import TorchVGSLModel

    spec = "[1,24,0,1 Cr3,3,16 Mp2,2 Cr3,3,24 Mp2,2 S1(1x0)1,3 Lbx32 Do Lbx24 O1c12]"
    return TorchVGSLModel(vgsl=spec).nn, floats(1, 1, 24, 40)


@zoo("DeepAR (GluonTS)", "forecasting", "gluonts", "toolz", "pandas")
def deepar() -> tuple[nn.Module, Any]:
    from gluonts.torch.model.deepar.module import DeepARModel

    class Likelihood(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = DeepARModel(
                "D", context_length=8, prediction_length=4, hidden_size=24, lags_seq=[1, 2]
            )

        def forward(self, *given: Tensor) -> Any:
            return self.model.unroll_lagged_rnn(*given)[0]

    past = 8 + 2
    example = (
        torch.zeros(3, 1, dtype=torch.long),
        floats(3, 1),
        floats(3, past, 1),
        floats(3, past),
        torch.ones(3, past),
        floats(3, 4, 1),
        floats(3, 4),
    )
    return Likelihood(), example


@zoo("LSTM (neuralforecast)", "forecasting", "neuralforecast", "utilsforecast", "coreforecast")
def neural_lstm() -> tuple[nn.Module, Any]:
    from neuralforecast.models import LSTM

    model = LSTM(
        h=4, input_size=12, encoder_hidden_size=24, decoder_hidden_size=20, recurrent=False
    )
    batch = {
        "insample_y": floats(3, 12, 1),
        "futr_exog": None,
        "hist_exog": None,
        "stat_exog": None,
    }
    return model, (batch,)


@zoo("DilatedRNN", "forecasting", "neuralforecast", "utilsforecast", "coreforecast")
def dilated() -> tuple[nn.Module, Any]:
    from neuralforecast.models import DilatedRNN

    model = DilatedRNN(
        h=4, input_size=12, encoder_hidden_size=24, decoder_hidden_size=20, dilations=[[1, 2], [4]]
    )
    batch = {
        "insample_y": floats(3, 12, 1),
        "futr_exog": None,
        "hist_exog": None,
        "stat_exog": None,
    }
    return model, (batch,)


@zoo("Temporal Fusion Transformer", "forecasting", "pytorch-forecasting", "scikit-base")
def fusion() -> tuple[nn.Module, Any]:
    from pytorch_forecasting.models.temporal_fusion_transformer.sub_modules import (
        GatedLinearUnit,
        GatedResidualNetwork,
    )

    class Decoder(nn.Module):
        """The recurrent part: two LSTMs, gated residual networks around them."""

        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.LSTM(8, 24, batch_first=True)
            self.decoder = nn.LSTM(6, 24, batch_first=True)
            self.gate = GatedLinearUnit(24, dropout=0.1)
            self.enrich = GatedResidualNetwork(24, 20, 16, dropout=0.1)
            self.out = nn.Linear(16, 3)

        def forward(self, past: Tensor, future: Tensor) -> Tensor:
            encoded, state = self.encoder(past)
            decoded, _ = self.decoder(future, state)
            return self.out(self.enrich(self.gate(torch.cat([encoded, decoded], 1))))

    return Decoder(), (floats(2, 7, 8), floats(2, 4, 6))


class Spaces:
    """Stands in for an action or observation space where only its shape counts."""

    @staticmethod
    def box(size: int) -> Any:
        import numpy as np
        from gymnasium.spaces import Box

        return Box(-1, 1, (size,), np.float32)


@zoo("RecurrentPPO", "control", "sb3-contrib", "stable-baselines3", "gymnasium", "cloudpickle")
def recurrent_ppo() -> tuple[nn.Module, Any]:
    from gymnasium.spaces import Discrete
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
    from sb3_contrib.common.recurrent.type_aliases import RNNStates

    policy = RecurrentActorCriticPolicy(
        Spaces.box(6), Discrete(3), lambda _: 1e-3, lstm_hidden_size=24, net_arch=[16]
    )
    states = [(floats(1, 2, 24), floats(1, 2, 24)) for _ in range(2)]
    call = Evaluated(policy)
    return call, (floats(8, 6), torch.randint(3, (8,)), RNNStates(*states), torch.zeros(8))


class Evaluated(nn.Module):
    """A policy as training calls it."""

    def __init__(self, policy: nn.Module) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, *given: Any) -> Any:
        return self.policy.evaluate_actions(*given)


@zoo("RLlib LSTM", "control", "ray", "jsonschema", "msgpack", "pyarrow", "dm_tree", "gymnasium")
def rllib() -> tuple[nn.Module, Any]:
    from ray.rllib.core.columns import Columns
    from ray.rllib.core.models.configs import MLPHeadConfig, RecurrentEncoderConfig

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            config = RecurrentEncoderConfig(
                input_dims=[6], recurrent_layer_type="lstm", hidden_dim=24, num_layers=1
            )
            self.encoder = config.build(framework="torch")
            head = MLPHeadConfig(input_dims=[24], hidden_layer_dims=[16], output_layer_dim=3)
            self.head = head.build(framework="torch")

        def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
            found = self.encoder(batch)
            return {
                "logits": self.head(found["encoder_out"]),
                Columns.STATE_OUT: found["state_out"],
            }

    state = {"h": floats(3, 1, 24), "c": floats(3, 1, 24)}
    return Policy(), ({"obs": floats(3, 5, 6), "state_in": state},)


@zoo("TorchRL LSTM", "control", "torchrl", "tensordict", "pyvers", "orjson", states=("embed",))
def torchrl() -> tuple[nn.Module, Any]:
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torchrl.modules import LSTMModule

    lstm = LSTMModule(
        lstm=nn.LSTM(6, 24, batch_first=True),
        in_keys=["observation", "state_h", "state_c"],
        out_keys=["embed", ("next", "state_h"), ("next", "state_c")],
        default_recurrent_mode=True,
    )
    head = TensorDictModule(nn.Linear(24, 3), in_keys=["embed"], out_keys=["action"])
    given = {
        "observation": floats(2, 5, 6),
        "state_h": floats(2, 5, 1, 24),
        "state_c": floats(2, 5, 1, 24),
        "is_init": torch.zeros(2, 5, 1, dtype=torch.bool),
    }
    return TensorDictSequential(lstm, head), (TensorDict(given, [2, 5]),)


@zoo("minGRU", "text", "minGRU-pytorch", "einops", "x-transformers")
def min_gru() -> tuple[nn.Module, Any]:
    from minGRU_pytorch.minGRU import minGRU

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(30, 16)
            self.first, self.second = minGRU(16, expansion_factor=1.5), minGRU(16)
            self.out = nn.Linear(16, 5)

        def forward(self, words: Tensor) -> Tensor:
            return self.out(self.second(self.first(self.embed(words))))

    return Tagger(), torch.randint(30, (3, 8))


@zoo("SRU", "text", "sru")
def sru() -> tuple[nn.Module, Any]:
    from sru import SRU

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(30, 16)
            self.rnn = SRU(16, 24, num_layers=2)
            self.out = nn.Linear(24, 5)

        def forward(self, words: Tensor) -> Tensor:
            return self.out(self.rnn(self.embed(words))[0])

    return Tagger(), torch.randint(30, (8, 3))
