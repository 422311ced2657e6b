"""The public names and their types; `__init__.py` loads them on first use."""

from thinrnn._discovery.find import find_groups as find_groups
from thinrnn._gates.attach import attach_ as attach_
from thinrnn._gates.attach import detach_ as detach_
from thinrnn._gates.attach import gates as gates
from thinrnn._gates.attach import param_groups as param_groups
from thinrnn._gates.gate import Estimator as Estimator
from thinrnn._gates.gate import Fixed as Fixed
from thinrnn._gates.gate import Gate as Gate
from thinrnn._gates.gate import HardConcrete as HardConcrete
from thinrnn._penalties.group_lasso import GroupLasso as GroupLasso
from thinrnn._penalties.l0 import L0 as L0
from thinrnn._penalties.magnitude import magnitude_ as magnitude_
from thinrnn._penalties.target import Target as Target
from thinrnn._surgery.compact import compact as compact
from thinrnn._surgery.count import Count as Count
from thinrnn._surgery.count import ModuleCount as ModuleCount
from thinrnn._surgery.count import count as count
from thinrnn._surgery.provenance import kept_inputs as kept_inputs
from thinrnn._surgery.save import load_ as load_
from thinrnn._surgery.save import save as save
from thinrnn._surgery.shrink import cut_ as cut_
from thinrnn._surgery.shrink import kept as kept
from thinrnn._surgery.shrink import shrink_ as shrink_
from thinrnn._surgery.verify import verify as verify
from thinrnn.nn.rhn import RHN as RHN
from thinrnn.nn.rnn_stack import RNNStack as RNNStack
from thinrnn.nn.states import States as States
from thinrnn.onnx.export import Export as Export
from thinrnn.onnx.export import export_onnx as export_onnx
from thinrnn.onnx.quantize import Quantized as Quantized
from thinrnn.onnx.quantize import quantize_onnx as quantize_onnx
from thinrnn.onnx.top_k import top_k_onnx as top_k_onnx
from thinrnn.plan import Group as Group
from thinrnn.plan import Plan as Plan
from thinrnn.plan import Refusal as Refusal
from thinrnn.plan import Slice as Slice
from thinrnn.timing import Benchmark as Benchmark
from thinrnn.timing import Timing as Timing
from thinrnn.timing import benchmark as benchmark

__version__: str
