"""NeuronSelection for the Trainer of transformers: a callback that prunes what it trains."""

import warnings
from typing import Any, Unpack

from thinrnn._extras import missing, require
from thinrnn._training.pruner import Options, Pruner
from thinrnn.errors import GateError

if missing("transformers", "accelerate"):
    require("integrations", "transformers", "accelerate")
else:
    from transformers import (
        Trainer,
        TrainerCallback,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )


class NeuronSelection(TrainerCallback):  # type: ignore[misc]
    """Prunes the model of a `Trainer` while it trains; afterwards the model is small and plain.

    Gates are attached after the first step, or at `start_step` and `start_epoch`; closed neurons
    leave the model at the end of each epoch; sizes and kept neurons go to the trainer's log. The
    gradient of an `l0` penalty is added before each optimizer step, so `compute_loss` stays yours.
    Checkpoints are the trainer's own: to resume, make the trainer with a new dense model and the
    same callback, then call `trainer.train(resume_from_checkpoint=True)`.

    Args:
        trainer: The trainer that gets this callback, by `trainer.add_callback`.
        **options: As for `thinrnn.Pruner`. Without `steps` the target is reached after 60 % of
            the trainer's steps.

    Attributes:
        difference: How far the outputs moved when the model was made small at the end.

    Raises:
        MissingExtraError: transformers or accelerate is not installed.
        GateError: The trainer uses fp16, or loads an earlier model at the end.

    Example:
        >>> from transformers import Trainer, TrainingArguments
        >>> from thinrnn.integrations.transformers import NeuronSelection
        >>> model = nn.Sequential(nn.Embedding(50, 16), nn.LSTM(16, 32))
        >>> trainer = Trainer(model, TrainingArguments(use_cpu=True, report_to="none"))
        >>> trainer.add_callback(NeuronSelection(trainer, target={"params": 0.7}))
    """

    def __init__(self, trainer: Trainer, **options: Unpack[Options]) -> None:
        if trainer.args.fp16:
            raise GateError(
                "fp16=True scales the loss, and the gates' optimizer does not follow: train with "
                "bf16=True or without."
            )
        if trainer.args.load_best_model_at_end:
            raise GateError(
                "load_best_model_at_end=True would load a model of an earlier, larger size: set it "
                "to False, or choose among the checkpoints of the final size yourself."
            )
        self.trainer = trainer
        self.pruner = Pruner(trainer.model, **options)
        self.difference: float | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take the optimizer, which the trainer has made by now."""
        optimizer = kwargs["optimizer"]
        self.pruner.use_optimizer_(getattr(optimizer, "optimizer", optimizer))
        self.pruner.total_steps = state.max_steps

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Add the gradient of the penalty."""
        self.pruner.add_penalty_()

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Step the gates."""
        self.pruner.step()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """After an epoch remove closed neurons, before a checkpoint is written, and log."""
        if state.epoch % 1:
            return
        self.pruner.end_epoch()
        numbers = self.pruner.numbers()
        self.trainer.log({f"thinrnn/{name}": float(n) for name, n in numbers.items()})

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Make the model small and plain."""
        if self.pruner.is_attached:
            self.difference = self.pruner.finish_()
        else:
            warnings.warn("the training ended before gates were attached.", stacklevel=2)
