"""The paper's readers and ours: settings by name.

A target counts all parameters. The paper does not count the second biases of torch's LSTMs. Both
count the tables of characters and of words outside GloVe.
"""

from thinrnn.lab.recipes.named_settings import Presets
from thinrnn.lab.recipes.squad.settings import SquadSettings

PAPER_BUDGET = 960_000
PAPER_SIX = (26, 33, 36, 36, 33, 15)

PRESETS = Presets("squad", prefix="squad-")


@PRESETS.add(
    "dense", "BiDAF on SQuAD, the paper's vanilla row", "EM 67.88, F1 77.42, 2.66M weights"
)
def dense() -> SquadSettings:
    """The vanilla row: Adam, as in the code that the paper's baseline comes from."""
    return SquadSettings(phases=("dense",))


@PRESETS.add("dense-adadelta", "the same by Adadelta, twice as long")
def dense_adadelta() -> SquadSettings:
    """The same as in the first code of BiDAF."""
    return dense().replaced(optimizer="adadelta", lr=0.5, steps=20_000)


@PRESETS.add(
    "iss",
    "BiDAF pruned by group lasso, for comparison",
    "EM 61.33, F1 72.59, 1.13M weights, with lasso=0.0003, lasso_zero=0.01, lasso_zero_at_end=0.0",
)
def iss() -> SquadSettings:
    """With the settings of its authors."""
    return SquadSettings(
        phases=("gated",),
        target_params=None,
        lasso=1e-3,
        lasso_zero=4e-4,
        lasso_zero_at_end=0.02,
        small_dropout=0.1,
    )


@PRESETS.add(
    "paper", "BiDAF, neuron selection at the paper's size", "EM 67.93, F1 77.33, 0.96M weights"
)
def paper() -> SquadSettings:
    """And the same shape from scratch."""
    return SquadSettings(phases=("gated", "control"), target_params=PAPER_BUDGET, small_dropout=0.1)


@PRESETS.add(
    "fast", "BiDAF, the encoder pruned too, for speed", "EM 65.62, F1 75.86, 0.70M weights"
)
def fast() -> SquadSettings:
    return SquadSettings(
        select="recurrent", phases=("gated", "control"), target_params=700_000, small_dropout=0.1
    )


@PRESETS.add(
    "scratch", "BiDAF with the paper's sizes from scratch", "EM 66.05, F1 76.27, 0.92M weights"
)
def scratch() -> SquadSettings:
    return SquadSettings(phases=("dense",), six=PAPER_SIX, dropout=0.1)


@PRESETS.add("thin", "BiDAF, our best recipe", "EM 67.71, F1 77.36, 1.20M weights")
def thin() -> SquadSettings:
    """As good as the dense one with less than half of its weights."""
    return SquadSettings(
        phases=("gated", "control"),
        target_params=1_200_000,
        steps=12_000,
        small_dropout=0.15,
    )
