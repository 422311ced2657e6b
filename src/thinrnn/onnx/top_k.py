"""top_k_onnx: an ONNX file that returns the best words of the last step instead of all logits."""

from pathlib import Path

from thinrnn.onnx._passes.last_step import keep_top_k_
from thinrnn.onnx.files import finished, read_model, understood, write_model
from thinrnn.onnx.runtime import OnnxFile, require_onnx


def top_k_onnx(path: str | Path, out: str | Path, *, k: int = 10) -> Path:
    """Write an ONNX file that returns the `k` largest logits of the last step instead of all.

    This suits keyboards and other programs that show a few next words. The output layer runs once
    per call instead of once per step, and nothing of the size of the vocabulary leaves the runtime.
    The outputs are "best" (1, B, k), the numbers of the words, and "best.logits", largest first.
    States stay as they are.

    Args:
        path: A file from `export_onnx` or `quantize_onnx`. Its first output has to be logits
            (time, batch, words) that come from one linear layer, or from several side by side.
        out: The file to write. It may be the same as `path`.
        k: How many words.

    Returns:
        The path of the new file.

    Raises:
        ExportError: The first output does not have the shape of logits, or there are fewer than
            `k` words.
        FolderError: The file cannot be read, or is not an ONNX file.
        MissingExtraError: The extra "onnx" is not installed.

    Examples:
        >>> import torch
        >>> from tempfile import mkdtemp
        >>> from thinrnn import export_onnx
        >>> class Words(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.rnn, self.head = torch.nn.GRU(4, 3), torch.nn.Linear(3, 50)
        ...     def forward(self, x):
        ...         return self.head(self.rnn(x)[0])
        >>> folder = mkdtemp()
        >>> exported = export_onnx(Words(), folder + "/words.onnx", torch.randn(5, 2, 4))
        >>> top_k_onnx(exported.path, folder + "/top.onnx", k=5).name
        'top.onnx'
    """
    require_onnx()
    path, out = Path(path), Path(out)
    with understood(path):
        model = read_model(path)
        keep_top_k_(model.graph, k)
        content = finished(model)
    write_model(content, out, OnnxFile)
    return out
