"""top_k_onnx: an ONNX file that gives the best words of the last step instead of all logits."""

from pathlib import Path

from thinrnn.onnx._passes.last_step import keep_top_k_
from thinrnn.onnx.files import read_model, write_model
from thinrnn.onnx.runtime import OnnxFile, require_onnx


def top_k_onnx(path: str | Path, out: str | Path, *, k: int = 10) -> Path:
    """Write an ONNX file that gives the `k` best words of the last step, and return its path.

    Outputs "best" (1, B, k) are the numbers of the words and "best.logits" their logits, largest
    first; states stay as they are. The output layer is computed for one step of each call and
    nothing of the size of the vocabulary leaves the runtime.

    Arguments:
        path: a file of `export_onnx`, or of `quantize_onnx`, of a model that ends in a linear
            layer, or in several side by side, and whose first output is its logits (T, B, V).
        out: the file to write.
        k: how many words.
    """
    require_onnx()
    out = Path(out)
    model = read_model(Path(path))
    keep_top_k_(model.graph, k)
    write_model(model, out, OnnxFile)
    return out
