"""Finding the models that a path on the command line names."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinrnn._files import read_json
from thinrnn.errors import RunError
from thinrnn.lab.command import command
from thinrnn.lab.run import InputError, RunFolder
from thinrnn.lab.run.folder import MODELS
from thinrnn.lab.run.schemas import AnyFields, Made


@dataclass(frozen=True)
class Found:
    """A model's folder, its recipe and kind, and the run that made it, if any."""

    folder: Path
    recipe: str
    kind: str
    run: RunFolder | None = None

    @property
    def config(self) -> dict[str, Any] | None:
        return None if self.run is None else self.run.config

    def figures(self) -> dict[str, Any]:
        """Return what the run measured, or the published figures of a model in results/."""
        if self.run is not None:
            found = self.run.summary(self.kind)
        else:
            folder = self.folder.resolve()
            results, name = folder.parent.parent, f"{folder.name}.json"
            files = [*results.glob(name), *results.glob(f"*/{name}")]  # of the published run
            published = folder.parent.name == "models" and files
            found = read_json(files[0], AnyFields).table().get("stored") if published else None
        return {name: value for name, value in (found or {}).items() if value is not None}


def find_model(path: Path, kind: str = "small") -> Found:
    """Return one model of a run, or the model in a folder."""
    if kind not in MODELS:
        raise InputError(f"there is no kind '{kind}': choose one of {', '.join(MODELS)}.")
    found = find_models(path)
    if found[0].run is None:
        return found[0]
    models = {model.kind: model for model in found}
    if kind not in models:
        raise RunError(
            f"{path} has no {kind} model; it has: {', '.join(models)}. Choose one with --kind."
        )
    return models[kind]


def find_models(path: Path) -> list[Found]:
    """Return all finished models of a run, or the one in a folder."""
    if (path / "recipe.json").exists():
        return [Found(path, read_json(path / "recipe.json", Made).recipe, path.name)]
    if not path.exists():
        raise RunError(f"{path} does not exist; '{command('list')}' shows the runs.")
    if not (path / "config.json").exists():
        raise RunError(
            f"{path} is neither a run folder (no config.json) nor a model (no recipe.json)."
        )
    run = RunFolder(path)
    found = [
        Found(path / folder, run.config["recipe"], kind, run)
        for kind, folder in MODELS.items()
        if run.summary(kind) is not None
    ]
    if not found:
        raise RunError(
            f"{path} has no finished model yet: "
            f"continue it with '{command('train', '--resume', path)}'."
        )
    return found
