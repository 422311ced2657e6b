"""How long `export_onnx` takes for a small model: the first one of a process, and the next.

    python -m benchmarks.export_time

kept    the table of ONNX translations is kept from export to export, as `export_onnx` does
built   torch builds it in every export

Each is measured in processes of its own, in turn. Seconds of CPU are compared, since a busy machine
changes those of the clock.
"""

import statistics
import subprocess
import sys
from typing import Any

from benchmarks.record import parser, write_record

PROGRAM = """
import contextlib, sys, tempfile, time
import torch
from torch import nn
import thinrnn
from thinrnn.onnx._trace import graph

class Keyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(8, 24, num_layers=2, batch_first=True), nn.Linear(24, 3)

    def forward(self, x):
        return self.head(self.gru(x)[0])

if sys.argv[1] == "built":
    graph.kept_translations = contextlib.nullcontext
for _ in range(3):
    start = time.process_time(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        thinrnn.export_onnx(Keyword(), folder + "/k.onnx", torch.randn(2, 5, 8), streaming=True)
    print(time.process_time() - start[0], time.perf_counter() - start[1])
"""


def measured(way: str) -> list[list[float]]:
    """Return seconds of CPU and of the clock of three exports in one process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, way], check=True, capture_output=True, text=True
    )
    return [[float(part) for part in line.split()] for line in done.stdout.splitlines()]


def main() -> None:
    arguments = parser(__doc__, "export-time-cpu.json")
    arguments.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    options = arguments.parse_args()
    runs: dict[str, list[list[list[float]]]] = {"built": [], "kept": []}
    for _ in range(options.rounds):
        for way, own in runs.items():
            own.append(measured(way))
    found: dict[str, Any] = {
        way: {
            f"export {place + 1}": {
                "cpu_seconds": statistics.median(run[place][0] for run in own),
                "seconds": statistics.median(run[place][1] for run in own),
            }
            for place in range(3)
        }
        for way, own in runs.items()
    }
    print(found)
    write_record("seconds of export_onnx for a small GRU, streaming", options, exports=found)


if __name__ == "__main__":
    main()
