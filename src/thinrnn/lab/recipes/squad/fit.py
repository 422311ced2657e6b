"""Train one phase of a reading run: what a round ends with, and what is said meanwhile."""

import math
from collections.abc import Callable
from typing import Any

from thinrnn.lab.device.arithmetic import arithmetic
from thinrnn.lab.models.weights import weights_of
from thinrnn.lab.recipes.fitting import Loop
from thinrnn.lab.recipes.gate_log import gate_state, params_kept
from thinrnn.lab.recipes.squad.batches import Batches
from thinrnn.lab.recipes.squad.data import Split
from thinrnn.lab.recipes.squad.evaluate import Score, score
from thinrnn.lab.recipes.squad.training import Training
from thinrnn.lab.run import RunFolder
from thinrnn.lab.run.metrics import Metrics
from thinrnn.lab.run.progress import Progress


class Fitting(Loop[Training]):
    """The loop around a `Training`; the weights of the last round are the ones to keep.

    No round is chosen by its score: dev is what the paper reports.
    """

    usual_clip = 5.0

    def __init__(
        self,
        training: Training,
        dev: tuple[Split, Batches],
        run: RunFolder,
        metrics: Metrics,
        progress: Progress,
        watch: Callable[[dict[str, Any]], None],
    ) -> None:
        super().__init__(run, metrics, progress, watch)
        self.training, self.dev = training, dev

    @property
    def total(self) -> int:
        return self.training.settings.steps

    def shown(self, loss: float) -> dict[str, str]:
        return {"loss": f"{loss:.3f}"}

    def end_epoch(self) -> None:
        """Score dev with the averaged weights, remove closed neurons, write it down."""
        t = self.training
        train_loss, penalty = t.means.of_round()
        if not t.is_finite():
            self.diverged()
        t.pruning.close_()
        with t.optimizer.averaged():
            reached = self.score()
            gates, params = gate_state(t.model), params_kept(t.model)
        if t.pruning.is_on and t.settings.shrink:
            t.shrink()
        with t.optimizer.averaged():
            t.best = weights_of(t.model, t.pruning)
        losses = {
            "train_loss": train_loss,
            "valid_loss": reached.loss,
            "valid_perplexity": boundary_perplexity(reached.loss),
            "em": reached.em,
            "f1": reached.f1,
            "penalty": penalty,
        }
        self.tell_epoch(losses, gates, params=params, target=t.pruning.params)
        sizes = f"  kept {'-'.join(map(str, gates['kept'].values()))}" if gates["kept"] else ""
        self.progress.line(
            f"{t.phase:<8} step {t.step:>6}/{self.total}  train {train_loss:.3f}  "
            f"dev {reached.loss:.3f}  EM {reached.em:.2f}  F1 {reached.f1:.2f}{sizes}"
        )
        t.begin_epoch()

    def score(self) -> Score:
        t = self.training
        split, batches = self.dev
        return score(
            t.model,
            split,
            batches,
            batch=t.settings.eval_batch,
            arithmetic=lambda: arithmetic(t.settings.precision, batches.device),
        )


def boundary_perplexity(loss: float) -> float:
    """Return among how many tokens a model wavers when it chooses the first or the last one."""
    return math.exp(loss / 2) if loss < 1400 else math.inf
