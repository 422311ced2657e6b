"""The names that `import thinrnn` offers."""

from thinrnn.attach import attach_, detach_, gates, param_groups
from thinrnn.benchmark import benchmark
from thinrnn.compact import compact
from thinrnn.count import Count, count
from thinrnn.export import best_onnx, export_onnx, quantize_onnx
from thinrnn.find import find_groups
from thinrnn.gate import Fixed, Gate, HardConcrete
from thinrnn.l0 import L0
from thinrnn.lasso import GroupLasso
from thinrnn.magnitude import magnitude_
from thinrnn.plan import Group, Plan, Slice
from thinrnn.record import kept_inputs
from thinrnn.rhn import RHN
from thinrnn.rnn_stack import RNNStack
from thinrnn.save import load_, save
from thinrnn.shrink import cut_, kept, shrink_
from thinrnn.states import States
from thinrnn.target import Target
from thinrnn.verify import verify
from thinrnn.version import __version__

__all__ = [
    "L0",
    "RHN",
    "Count",
    "Fixed",
    "Gate",
    "Group",
    "GroupLasso",
    "HardConcrete",
    "Plan",
    "RNNStack",
    "Slice",
    "States",
    "Target",
    "__version__",
    "attach_",
    "benchmark",
    "best_onnx",
    "compact",
    "count",
    "cut_",
    "detach_",
    "export_onnx",
    "find_groups",
    "gates",
    "kept",
    "kept_inputs",
    "load_",
    "magnitude_",
    "param_groups",
    "quantize_onnx",
    "save",
    "shrink_",
    "verify",
]
