"""Pictures of many small values: gate values over time, and weight matrices.

A picture is a PNG of one flat colour that is as opaque as its values, over a ground that style.css
colours; so it suits the light and the dark theme.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.image import imsave

from thinrnn.lab.report.read import WeightMatrix

INK = (0x2B, 0x7B, 0xC2)  # as --hot in style.css
SIDE = 136.0  # longest side of a drawn matrix in CSS pixels: two fit side by side on a phone
MOST_PIXELS = 256  # of a picture, along each side
SLIMMEST = 4.0  # a matrix that is longer than this is drawn with its long side shortened


@dataclass(frozen=True)
class MatrixPicture:
    """A matrix at its original shape, and the size of the small one to the same scale."""

    source: str
    width: float
    height: float
    small_width: float
    small_height: float


def png(opacity: np.ndarray) -> str:
    """Returns a picture of values between 0 and 1 as a data address; NaN is 0."""
    alpha = np.rint(np.clip(np.nan_to_num(opacity), 0, 1) * 255).astype(np.uint8)
    rgba = np.empty((*alpha.shape, 4), np.uint8)
    rgba[..., :3], rgba[..., 3] = INK, alpha
    file = io.BytesIO()
    imsave(file, rgba, format="png", metadata={"Software": "thinrnn"})  # no version: reproducible
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def gate_picture(values: Sequence[np.ndarray]) -> str:
    """Returns the gate values of a group: epochs run to the right, long-lived neurons are above.

    Args:
        values: For each epoch the values of all neurons, or of even shares of them.
    """
    picture = np.stack(values, axis=1)  # (neurons, epochs)
    order = np.argsort(-np.nan_to_num(picture).mean(axis=1), kind="stable")
    return png(picture[order])


def matrix_picture(matrix: WeightMatrix) -> MatrixPicture:
    """Returns a matrix whose kept entries are inked."""
    longest = max(matrix.rows, matrix.columns)
    width = max(matrix.columns, longest / SLIMMEST) * SIDE / longest
    height = max(matrix.rows, longest / SLIMMEST) * SIDE / longest
    rows = kept_shares(matrix.kept_rows, matrix.rows)
    columns = kept_shares(matrix.kept_columns, matrix.columns)
    return MatrixPicture(
        png(np.outer(rows, columns)),
        width,
        height,
        max(width * len(matrix.kept_columns) / matrix.columns, 1.0),
        max(height * len(matrix.kept_rows) / matrix.rows, 1.0),
    )


def kept_shares(kept: np.ndarray, size: int, most: int = MOST_PIXELS) -> np.ndarray:
    """Returns 0..size-1 in at most `most` even bins, as the share of each bin that is kept.

    >>> kept_shares(np.array([0, 1, 2]), 6, most=3).tolist()
    [1.0, 0.5, 0.0]
    """
    bins = min(size, most)
    edges = np.rint(np.linspace(0, size, bins + 1)).astype(np.int64)
    flags = np.zeros(size)
    flags[kept] = 1.0
    return np.asarray(np.add.reduceat(flags, edges[:-1]) / np.diff(edges))
