"""thinrnn makes recurrent networks thin."""

from thinrnn.attach import attach_, detach_, gates, param_groups
from thinrnn.compact import compact
from thinrnn.find import find_groups
from thinrnn.gate import Fixed, HardConcrete
from thinrnn.plan import Group, Plan, Slice
from thinrnn.record import kept_inputs
from thinrnn.rnn_stack import RNNStack
from thinrnn.verify import verify
from thinrnn.version import __version__

__all__ = [
    "Fixed",
    "Group",
    "HardConcrete",
    "Plan",
    "RNNStack",
    "Slice",
    "__version__",
    "attach_",
    "compact",
    "detach_",
    "find_groups",
    "gates",
    "kept_inputs",
    "param_groups",
    "verify",
]
