"""An LSTM of neuralforecast, pruned to a fifth while it is trained by neuralforecast's own `fit`.

    pip install neuralforecast statsmodels
    python examples/forecasting/co2_lstm.py --out results/speed/forecaster-co2.json

The series is the weekly CO2 in the air at Mauna Loa from 1958 to 2001, which statsmodels ships. The
last three years are forecast half a year ahead, six times. Three models get the same training:
the large one, the large one pruned on the way, and one that is made as small from the start.
"""

import argparse
import json
import logging
import shlex
import statistics
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy
import pandas
import torch
from neuralforecast import NeuralForecast
from neuralforecast.losses.pytorch import MAE
from neuralforecast.models import LSTM
from statsmodels.datasets import co2

import thinrnn
from thinrnn.integrations.lightning import NeuronSelection
from thinrnn.lab.run.environment import environment

HORIZON, WINDOW, WEEKS_HELD_OUT = 26, 78, 6 * 26


def read_series() -> pandas.DataFrame:
    """Return the series as neuralforecast wants it; the few missing weeks are interpolated."""
    series = co2.load_pandas().data["co2"].interpolate()
    return pandas.DataFrame({"unique_id": "co2", "ds": series.index, "y": series.to_numpy()})


def train(frame: pandas.DataFrame, hidden: int, steps: int, seed: int, *callbacks):
    model = LSTM(
        h=HORIZON,
        input_size=WINDOW,
        encoder_hidden_size=hidden,
        encoder_n_layers=2,
        decoder_hidden_size=hidden,
        loss=MAE(),
        scaler_type="robust",
        learning_rate=2e-3,
        max_steps=steps,
        windows_batch_size=32,
        random_seed=seed,
        callbacks=[*callbacks],
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
    )
    forecaster = NeuralForecast(models=[model], freq="W-SAT")
    forecaster.fit(frame.iloc[:-WEEKS_HELD_OUT])
    return forecaster


def error_of(forecaster: NeuralForecast, frame: pandas.DataFrame) -> float:
    """Return the mean absolute error in parts per million."""
    errors = []
    for start in range(len(frame) - WEEKS_HELD_OUT, len(frame), HORIZON):
        forecast = forecaster.predict(frame.iloc[:start])["LSTM"].to_numpy()
        errors.append(numpy.abs(forecast - frame["y"].to_numpy()[start : start + HORIZON]).mean())
    return float(numpy.mean(errors))


def hidden_for(params: int) -> int:
    """Return the width whose dense LSTM has about so many parameters."""
    sizes = {
        n: thinrnn.count(
            LSTM(
                h=HORIZON,
                input_size=WINDOW,
                encoder_hidden_size=n,
                encoder_n_layers=2,
                decoder_hidden_size=n,
            )
        ).params
        for n in range(8, 96)
    }
    return min(sizes, key=lambda n: abs(sizes[n] - params))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--params", type=float, default=0.2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write what was measured to this JSON file")
    options = parser.parse_args()

    torch.set_num_threads(1)
    frame = read_series()
    errors: dict[str, list[float]] = {"dense": [], "pruned": [], "small from the start": []}
    models = {}
    for seed in range(1, options.seeds + 1):
        pruning = NeuronSelection(target={"params": options.params, "steps": options.steps // 2})
        dense = train(frame, options.hidden, options.steps, seed)
        pruned = train(frame, options.hidden, options.steps, seed, pruning)
        hidden = hidden_for(thinrnn.count(pruned.models[0]).params)
        control = train(frame, hidden, options.steps, seed)
        for name, one in zip(errors, (dense, pruned, control), strict=True):
            errors[name].append(error_of(one, frame))
            models[name] = one.models[0].cpu().eval()
        print(
            f"seed {seed}: " + ", ".join(f"{n} {e[-1]:.2f}" for n, e in errors.items()), flush=True
        )

    window = {"insample_y": torch.randn(1, WINDOW, 1)}
    window |= dict.fromkeys(("futr_exog", "hist_exog", "stat_exog"))
    times = thinrnn.benchmark(models, (window,), seconds=5.0)
    rows = {
        name: {
            "params": thinrnn.count(models[name]).params,
            "error_ppm": [round(e, 4) for e in errors[name]],
            "mean_error_ppm": round(statistics.mean(errors[name]), 4),
            "milliseconds": round(times[name].median, 4),
            "speedup": round(times.speedup(name), 3),
        }
        for name in models
    }
    for name, row in rows.items():
        print(
            f"{name:<21} {row['params']:>8,} parameters, error {row['mean_error_ppm']:.3f} ppm, "
            f"{row['milliseconds']:.2f} ms per forecast on one thread"
        )
    if options.out:
        record = {
            "what": "weekly CO2 at Mauna Loa, forecast 26 weeks ahead by neuralforecast's LSTM",
            "command": shlex.join(["python", *sys.argv]),
            "settings": {k: v for k, v in vars(options).items() if k != "out"},
            "models": rows,
            "times_are_noisy": times.is_noisy,
            "environment": environment("cpu")
            | {name: version(name) for name in ("neuralforecast", "statsmodels")},
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    for name in ("lightning", "pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    main()
