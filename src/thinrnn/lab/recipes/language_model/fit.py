"""Train one phase of a language model: what a round ends with, and what is said meanwhile."""

from collections.abc import Callable
from typing import Any

from thinrnn.lab.models.weights import weights_of
from thinrnn.lab.recipes.fitting import Loop
from thinrnn.lab.recipes.gate_log import gate_state, params_kept
from thinrnn.lab.recipes.language_model.corpus import Text
from thinrnn.lab.recipes.language_model.data import EOS
from thinrnn.lab.recipes.language_model.evaluate import mean_loss, perplexity
from thinrnn.lab.recipes.language_model.rules import apply_rules, judge
from thinrnn.lab.recipes.language_model.training import Training
from thinrnn.lab.run import RunFolder
from thinrnn.lab.run.metrics import Metrics
from thinrnn.lab.run.progress import Progress


class Fitting(Loop[Training]):
    """The loop around a `Training`; an epoch is a pass over the text."""

    def __init__(
        self,
        training: Training,
        text: Text,
        run: RunFolder,
        metrics: Metrics,
        progress: Progress,
        watch: Callable[[dict[str, Any]], None],
    ) -> None:
        super().__init__(run, metrics, progress, watch)
        self.training, self.text = training, text

    @property
    def total(self) -> int:
        return self.training.epochs * self.training.epoch_steps

    def shown(self, loss: float) -> dict[str, str]:
        return {
            "epoch": f"{self.training.epochs_done:.1f}",
            "loss": f"{loss:.3f}",
            "ppl": f"{perplexity(loss):.1f}",
        }

    def end_epoch(self) -> None:
        """Validate, decide what follows from it, remove closed neurons, write it down."""
        t, s = self.training, self.training.settings
        train_loss, penalty = t.epoch_means()
        if not t.is_finite():
            self.diverged()
        t.pruning.close_()
        with t.optimizer.averaged():
            valid_loss = self.valid_loss()
            if judge(t, valid_loss):
                t.best = {**weights_of(t.model, t.pruning), "loss": valid_loss}
        if apply_rules(t, valid_loss):
            self.progress.line(f"{t.phase}: averaging begins after epoch {t.epoch + 1}")
        gates, params = gate_state(t.model), params_kept(t.model)
        if t.pruning.is_on and s.shrink:
            t.shrink()
        losses = {
            "train_loss": train_loss,
            "valid_loss": valid_loss,
            "valid_perplexity": perplexity(valid_loss),
            "penalty": penalty,
        }
        self.tell_epoch(losses, gates, params=params, target=t.pruning.params)
        sizes = f"  kept {'-'.join(map(str, gates['kept'].values()))}" if gates["kept"] else ""
        self.progress.line(
            f"{t.phase:<8} epoch {t.epoch + 1:>3}/{t.epochs}  train {train_loss:.3f}  "
            f"valid {valid_loss:.3f}  perplexity {perplexity(valid_loss):.2f}{sizes}"
        )
        t.begin_epoch()

    def valid_loss(self) -> float:
        t, s = self.training, self.training.settings
        start = self.text.vocabulary.number(EOS)
        batch = s.valid_batch or s.eval_batch
        return mean_loss(t.model, self.text.valid, batch=batch, start=start)
