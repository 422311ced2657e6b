"""What follows from a validation loss: weights to keep, an end, a lower rate, averaging."""

from thinrnn.lab.recipes.language_model.training import Training
from thinrnn.lab.recipes.schedule import has_stalled


def judge(training: Training, valid_loss: float) -> bool:
    """Return whether these weights are the ones to keep so far; stop if nothing gets better.

    On the way to a target losses say little: only the final size counts. With a fixed penalty the
    last weights count.
    """
    if not training.pruning.is_final:
        return False
    if training.best is None or not training.pruning.keeps_best:
        return True
    if valid_loss < training.best["loss"]:
        training.bad_epochs = 0
        return True
    training.bad_epochs += 1
    patience = training.settings.patience
    training.stopped = bool(patience) and training.bad_epochs >= patience
    return False


def apply_rules(training: Training, valid_loss: float) -> bool:
    """Begin averaging where the losses call for it; return whether it begins."""
    if not training.pruning.is_final:
        return False
    begins = _should_average(training, valid_loss)
    if begins:
        training.optimizer.start_averaging()
        training.changed()
    training.history.append(valid_loss)
    return begins


def _should_average(training: Training, valid_loss: float) -> bool:
    settings = training.settings
    if settings.optimizer != "nt-asgd" or training.optimizer.averaging:
        return False
    if settings.average_from is not None and training.epoch + 1 >= settings.average_from:
        return True
    return has_stalled(training.history, valid_loss, settings.nonmonotone)
