"""How good the files are that are timed."""

from typing import Any

from thinrnn.lab.bench.candidates import Candidate
from thinrnn.lab.bench.runtimes import FILES
from thinrnn.lab.bench.wanted import Wanted
from thinrnn.lab.run.progress import Progress


def measure_quality(
    candidates: list[Candidate], wanted: Wanted, runtimes: list[str], progress: Progress
) -> list[dict[str, Any]]:
    """Return the perplexity of each model in ONNX Runtime on a text; nothing if there is none."""
    if wanted.text is None:
        return []
    from thinrnn.lab.recipes.language_model.onnx_model import measure_on

    found = []
    for one in candidates:
        for runtime in ("onnx", "int8"):  # the best words have no perplexity
            if runtime in runtimes:
                progress.line(f"measuring {one.name} in {runtime} on {wanted.text.name}")
                measure = measure_on(wanted.text, one.files / FILES["onnx"])
                value = measure(one.files / FILES[runtime])
                found.append({"model": one.name, "runtime": runtime, "perplexity": value})
    return [{**entry, "text": wanted.text.name} for entry in found]
