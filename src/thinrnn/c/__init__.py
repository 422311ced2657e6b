"""From a small model to one file of C99 that runs a step at a time and needs no library."""

from thinrnn.c.export import CExport, export_c

__all__ = ["CExport", "export_c"]
