"""NeuronSelection for Lightning: a callback that prunes the model which the trainer trains."""

import math
import warnings
from typing import Any, Unpack

from torch.optim import Optimizer

from thinrnn._extras import missing, require
from thinrnn._training.pruner import Options, Pruner
from thinrnn.errors import GateError

if missing("lightning"):
    require("integrations", "pytorch_lightning")
    from pytorch_lightning import Callback, LightningModule, Trainer
else:
    from lightning.pytorch import Callback, LightningModule, Trainer


class NeuronSelection(Callback):  # type: ignore[misc]
    """Prunes the LightningModule during `trainer.fit`; afterwards it is small and plain.

    Works in the `Trainer` of `lightning` and of `pytorch_lightning`. Gates are attached after the
    first step, or at `start_step` and `start_epoch`; closed neurons leave the model at the end of
    each epoch; sizes and kept neurons go to the trainer's loggers under `thinrnn/`. Checkpoints are
    Lightning's own: to resume, call `trainer.fit(model, ckpt_path=...)` with a new dense model and
    the same callback.

    Args:
        module: The name of the submodule to prune. By default the LightningModule, whose own
            `forward` must then be the forward pass of `training_step`.
        **options: As for `thinrnn.Pruner`. Without `steps` the target is reached after 60 % of
            the trainer's steps.

    Attributes:
        difference: How far the outputs moved when the model was made small at the end.

    Raises:
        MissingExtraError: Lightning is not installed.

    Example:
        >>> from lightning.pytorch import Trainer
        >>> from thinrnn.integrations.lightning import NeuronSelection
        >>> selection = NeuronSelection(target={"params": 0.2})
        >>> trainer = Trainer(callbacks=[selection], logger=False, enable_checkpointing=False)
    """

    def __init__(self, *, module: str = "", **options: Unpack[Options]) -> None:
        self.module = module
        self.options = options
        self.pruner: Pruner | None = None
        self.difference: float | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Make the pruner, before weights of a checkpoint are loaded."""
        if stage == "fit":
            self.pruner = Pruner(pl_module.get_submodule(self.module), **self.options)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the optimizers, before their state is loaded."""
        if trainer.precision in ("16-mixed", "16"):
            raise GateError(
                f"precision={trainer.precision!r} scales the loss, and the gates' optimizer does "
                "not follow: train with precision='bf16-mixed' or '32-true'."
            )
        pruner = self._pruner()
        pruner.use_optimizer_(trainer.optimizers)
        steps = trainer.estimated_stepping_batches
        pruner.total_steps = int(steps) if math.isfinite(steps) else None

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """Step the gates with the first optimizer."""
        first: Any = trainer.optimizers[0]
        if optimizer is first:
            self._pruner().add_penalty_()
            self._pruner().step()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remove closed neurons, and log what is left."""
        self._pruner().end_epoch()
        numbers = self._pruner().numbers()
        named = {f"thinrnn/{name}": float(n) for name, n in numbers.items()}
        pl_module.log_dict(named, sync_dist=True)  # equal in all processes

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the model small and plain."""
        if self._pruner().is_attached:
            self.difference = self._pruner().finish_()
        else:
            warnings.warn("the training ended before gates were attached.", stacklevel=2)

    def _pruner(self) -> Pruner:
        assert self.pruner is not None, "setup was not called"
        return self.pruner
