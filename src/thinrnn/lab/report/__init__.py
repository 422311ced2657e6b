"""The HTML report of one or several run folders."""

from thinrnn.lab.report.write import write_report

__all__ = ["write_report"]
