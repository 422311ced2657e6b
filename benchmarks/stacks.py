"""How long an RNNStack of unequal layers takes, beside torch's own RNN of two equal layers.

    python -m benchmarks.stacks

    modules   the stack with each cell called as a module, as before cells were called directly
    stack     the stack as it is
    equal     torch's own RNN, all layers as wide as the widest of the stack: it would be exact with
              weights padded by zeros, before its outputs and states are cut to size
    dense     torch's own RNN, four times as wide

Milliseconds are CPU time of the one thread, so other programs on the machine count little.
"""

import argparse
import time
from unittest.mock import patch

import torch
from torch import nn

from benchmarks.record import Call, medians, parser, write_record
from thinrnn.nn import rnn_cell
from thinrnn.nn.rnn_stack import RNNStack

KINDS: dict[str, type[nn.RNNBase]] = {"LSTM": nn.LSTM, "GRU": nn.GRU}
SHAPES = {"1 step": (1, 1), "20 steps": (20, 1), "20 steps, batch 8": (20, 8)}


def calls(
    kind: type[nn.RNNBase], sizes: tuple[int, ...], steps: int, batch: int
) -> dict[str, Call]:
    """Return one call of each, all with random weights and no state given."""
    wide = max(sizes)
    inputs = (wide, *sizes)
    cells = {f"l{k}": kind(inputs[k], size) for k, size in enumerate(sizes)}
    stack = RNNStack(cells, batch_first=False, dropout=0.0).eval()
    equal = kind(wide, wide, len(sizes)).eval()
    dense = kind(4 * wide, 4 * wide, len(sizes)).eval()
    x, x_dense = torch.randn(steps, batch, wide), torch.randn(steps, batch, 4 * wide)

    def by_modules() -> None:
        with patch.object(rnn_cell, "_plain_weights", lambda *_: None):
            stack(x)

    return {
        "modules": by_modules,
        "stack": lambda: stack(x),
        "equal": lambda: equal(x),
        "dense": lambda: dense(x_dense),
    }


def main() -> None:
    made = parser(__doc__, "stacks-cpu.json")
    made.add_argument("--rounds", type=int, default=11)
    made.add_argument("--sizes", default=["12,16", "48,64", "200,256"], nargs="+")
    options: argparse.Namespace = made.parse_args()
    torch.set_num_threads(1)
    rows = []
    with torch.inference_mode():
        for name, kind in KINDS.items():
            for text in options.sizes:
                sizes = tuple(map(int, text.split(",")))
                for shape, (steps, batch) in SHAPES.items():
                    torch.manual_seed(0)
                    made_calls = calls(kind, sizes, steps, batch)
                    found = medians(made_calls, options.rounds, now=time.thread_time)
                    row = {key: round(1000 * value, 1) for key, value in found.items()}
                    print(f"{name} {text}, {shape}: {row} microseconds", flush=True)
                    rows.append({"kind": name, "sizes": list(sizes), "shape": shape} | row)
    write_record(
        "microseconds of CPU time per call of a stack of unequal layers", options, times=rows
    )


if __name__ == "__main__":
    main()
