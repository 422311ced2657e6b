"""What follows from a validation loss: weights to keep, an end, a lower rate, averaging."""

import thinrnn
from thinrnn.lab.recipes.iss import Lasso
from thinrnn.lab.recipes.language_model.training import Training
from thinrnn.lab.recipes.schedule import has_stalled


def size_is_final(training: Training) -> bool:
    """Return False while a target is still being approached: losses then say little."""
    penalty = training.penalty
    return not isinstance(penalty, thinrnn.Target) or penalty.is_settled


def judge(training: Training, valid_loss: float) -> bool:
    """Return whether these weights are the ones to keep so far; stop if nothing gets better.

    With a target only the finished size counts; with a fixed penalty the last weights do.
    """
    if not size_is_final(training):
        return False
    if training.best is None or isinstance(training.penalty, thinrnn.L0 | Lasso):
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
    if not size_is_final(training):
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
