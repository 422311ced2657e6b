"""From a small model to a file for phones and boards: ExecuTorch and LiteRT."""

from thinrnn.edge.executorch import export_executorch
from thinrnn.edge.export import EdgeExport
from thinrnn.edge.litert import export_litert

__all__ = ["EdgeExport", "export_executorch", "export_litert"]
