"""The models to compare, each with the files that the runtimes read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinrnn.lab import recipes
from thinrnn.lab.bench.runtimes import C_FILE, EDGE_FILES, FILES, TOP_K
from thinrnn.lab.run.files import write_json


@dataclass(frozen=True)
class Candidate:
    """A model to time: its folder, the folder of its ONNX files, and its size."""

    name: str
    recipe: str
    folder: Path
    files: Path
    size: dict[str, Any]

    def place(self, runtime: str) -> dict[str, str]:
        """Return what a worker needs to load the model."""
        folder = self.files if runtime in (*FILES, *EDGE_FILES, "c") else self.folder
        return {"recipe": self.recipe, "folder": str(folder.resolve())}

    def bytes(self, runtime: str) -> int:
        """Return the size of the file, or in PyTorch and C that of the weights in float32."""
        if runtime in FILES | EDGE_FILES:
            return (self.files / (FILES | EDGE_FILES)[runtime]).stat().st_size
        if runtime == "c":
            return int(self.size["c_flash"])
        return int(self.size["bytes"])


def make_candidate(
    name: str, recipe: str, folder: Path, files: Path, runtimes: list[str]
) -> Candidate:
    """Return a model of a folder, with its ONNX files written into the folder `files`."""
    from thinrnn._surgery.count import count
    from thinrnn.onnx import quantize_onnx, top_k_onnx

    loaded = recipes.recipe(recipe).load(folder)
    counted = count(loaded.model)
    size = {key: getattr(counted, key) for key in ("params", "weights", "macs", "bytes")}
    if recipe == "language_model":
        size["sizes"] = recipes.language_model_recipe().sizes_of(loaded.model)
    files.mkdir(parents=True, exist_ok=True)
    if set(runtimes) & set(FILES):
        exported = recipes.recipe(recipe).export(folder, files / FILES["onnx"])
        size["onnx_difference"] = exported.difference
    if {"int8", "best"} & set(runtimes):
        quantize_onnx(files / FILES["onnx"], files / FILES["int8"])
    if "best" in runtimes:
        k = min(TOP_K, len(recipes.language_model_recipe().load(folder).vocabulary))
        top_k_onnx(files / FILES["int8"], files / FILES["best"], k=k)
    return Candidate(name, recipe, folder, files, size)


def add_c(one: Candidate) -> None:
    """Write the C file of a candidate, compiled for this machine, and what is in it."""
    from thinrnn.c.compiled import compile_shared

    file = one.files / C_FILE
    exported = recipes.language_model_recipe().export_c(one.folder, file)
    compile_shared(file, file.with_suffix(".so"), "-O3", "-march=native")
    about = {"name": exported.name, "states": exported.states, "outputs": exported.outputs}
    write_json(file.with_suffix(".json"), about)
    one.size["c_flash"] = exported.flash
    one.size["c_difference"] = exported.difference


def add_edge(one: Candidate, runtime: str) -> None:
    """Write the ExecuTorch or LiteRT file of a candidate, and the shapes of its states."""
    file = one.files / EDGE_FILES[runtime]
    exported = recipes.language_model_recipe().export_edge(one.folder, file, runtime=runtime)
    write_json(file.with_suffix(".json"), [exported.inputs[name] for name in exported.states])
    one.size[f"{runtime}_difference"] = exported.difference
