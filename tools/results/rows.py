"""The rows of the tables: what the paper reports, which run is ours, what was asked of it.

The paper is arXiv 1906.06847. Perplexities are valid, test; sizes are input, layer 1, layer 2;
weights are counted without biases, as the paper counts them.
"""

import math
from dataclasses import dataclass

from tools.results.read import Figures


@dataclass(frozen=True)
class Rival:
    """A model of ours that another one is compared with, by test perplexity."""

    kind: str  # dense, small or control
    name: str = ""  # of its run, if that is another one
    called: str = ""  # nothing: its kind
    margin: float | None = 0.0  # by how much it must be worse; None: it need not be


@dataclass(frozen=True)
class Row:
    """One model of ours beside the paper's; the limits are what was asked of ours."""

    label: str
    name: str  # of the run in results/
    kind: str  # which of its models: dense, small or control
    paper: Figures | None = None
    most_valid: float | None = None
    most_test: float | None = None
    most_weights: int | None = None
    compare: str = "test"  # the perplexity by which ours is better or worse than the paper's
    whose: str = "the paper"  # that `paper` is of
    rivals: tuple[Rival, ...] = ()
    line: str = ""  # of the figure of widths, that ours is a point of
    paper_line: str = ""  # likewise, the paper's


def _paper(valid: float, test: float, sizes: str, weights: int) -> Figures:
    return Figures((valid,), (test,), sizes, weights)


LSTM = (
    Row(
        "dense, plain SGD",
        "ptb-dense-sgd",
        "dense",
        _paper(82.57, 78.57, "1500-1500-1500", 66_000_000),
        most_valid=83.57,
        most_test=79.57,
    ),
    Row("dense, NT-ASGD", "ptb-dense-ntasgd", "dense"),
    Row(
        "ISS (group lasso)",
        "ptb-iss",
        "small",
        _paper(82.59, 78.65, "1500-373-315", 21_811_000),
        most_valid=82.59,
        most_test=78.65,
        most_weights=21_811_000,
    ),
    Row(
        "neuron selection",
        "ptb-paper",
        "small",
        _paper(81.62, 78.08, "251-296-247", 6_164_132),
        most_valid=81.6,
        most_test=78.0,
        most_weights=6_160_000,
        rivals=(
            Rival("control", margin=0.5),
            Rival(
                "dense",
                "ptb-dense-ntasgd",
                called="our dense model under the same schedule",
                margin=None,
            ),
        ),
    ),
    Row("the same shape from scratch", "ptb-paper", "control"),
    Row("the same shape from scratch, in a run of its own", "ptb-paper-scratch", "control"),
)

ABLATION = tuple(
    Row(
        f"{multiple}, 1, 1, 1",
        f"ptb-ablation-{multiple}",
        "small",
        _paper(valid, test, sizes, weights),
        # the last test perplexity in the paper's table is that of the row before: a copying error
        compare="valid" if multiple == 5 else "test",
    )
    for multiple, valid, test, sizes, weights in (
        (1, 81.73, 78.33, "1020-215-250", 14_230_000),
        (2, 82.87, 79.25, "635-146-247", 9_660_000),
        (3, 85.49, 81.82, "438-110-244", 7_410_000),
        (4, 87.37, 84.22, "333-88-242", 6_220_000),
        (5, 90.83, 84.22, "273-70-237", 5_490_000),
    )
)

# Lines of the figure of widths; a name with epochs is that of runs with as many.
OURS, ISS = "ours, taught, 40 epochs", "our ISS, taught, 40 epochs"
PAPER_ISS, PAPER_SELECTION = "ISS, its paper", "neuron selection, the paper"

HIGHWAY = (
    Row(
        "RHN, dense",
        "ptb-rhn-dense",
        "dense",
        _paper(67.9, 65.4, "830", 23_455_800),
        most_valid=68.9,
        most_test=66.4,
        line="ours, dense, 120 epochs",
        paper_line="dense, the paper",
    ),
    Row(
        "RHN, ISS (group lasso), taught by models, 40 epochs",
        "ptb-rhn-iss",
        "small",
        _paper(68.1, 65.4, "517", 11_050_358),
        line=ISS,
        paper_line=PAPER_ISS,
    ),
    Row(
        "RHN, neuron selection, taught by models",
        "ptb-rhn-paper",
        "small",
        _paper(68.2, 65.1, "389", 7_219_062),
        most_valid=68.2,
        most_test=65.1,
        most_weights=7_219_062,
        rivals=(
            Rival("control", "ptb-rhn-paper-control"),
            Rival("dense", "ptb-rhn-dense", called="our dense model", margin=None),
        ),
        line="ours, taught, 160 epochs",
        paper_line=PAPER_SELECTION,
    ),
    Row(
        "RHN, the same width from scratch, taught alike",
        "ptb-rhn-paper-control",
        "control",
        line="from scratch, taught, 160 epochs",
    ),
    Row(
        "RHN, neuron selection, plain",
        "ptb-rhn-plain",
        "small",
        _paper(68.2, 65.1, "389", 7_219_062),
        rivals=(Rival("control", "ptb-rhn-scratch"),),
        line="ours, plain, 100 epochs",
        paper_line=PAPER_SELECTION,
    ),
    Row(
        "RHN, the same width from scratch, plain",
        "ptb-rhn-scratch",
        "control",
        line="from scratch, plain, 100 epochs",
    ),
)

# Points of the paper's figure: test perplexity of ISS at the same width, from the ISS paper, which
# does not give the valid one.
HIGHWAY_CURVE = tuple(
    row
    for k, (width, test, weights) in enumerate(
        (
            (726, 65.0, 18_855_672),
            (517, 65.4, 11_050_358),
            (403, 67.7, 7_602_998),
            (328, 71.2, 5_646_848),
        ),
        start=1,
    )
    for row in (
        Row(
            f"RHN, selection to a width of {width}, taught by models",
            f"ptb-rhn-curve-{k}",
            "small",
            _paper(math.nan, test, str(width), weights),
            most_test=test,
            most_weights=weights,
            whose="ISS in its own paper",
            rivals=(Rival("control"),),
            line=OURS,
            paper_line=PAPER_ISS,
        ),
        Row(
            f"RHN, a width of {width} from scratch, taught alike",
            f"ptb-rhn-curve-{k}",
            "control",
            line="from scratch, taught, 40 epochs",
        ),
    )
) + tuple(
    Row(f"RHN, ISS, {which}er, taught by models", f"ptb-rhn-iss-{which}", "small", line=ISS)
    for which in ("weak", "strong")
)

BEYOND = (
    Row(
        "GRU, neuron selection",
        "ptb-gru",
        "small",
        most_weights=6_160_000,
        rivals=(Rival("control"),),
    ),
    Row("GRU, the same shape from scratch", "ptb-gru", "control"),
    Row(
        "plain RNN, neuron selection",
        "ptb-rnn",
        "small",
        most_weights=6_160_000,
        rivals=(Rival("control"),),
    ),
    Row("plain RNN, the same shape from scratch", "ptb-rnn", "control"),
    Row(
        "thin: our best recipe, tied",
        "ptb-thin",
        "small",
        most_test=66.0,
        most_weights=6_160_000,
        rivals=(Rival("control", "ptb-thin-scratch"),),  # the stronger of the two
    ),
    Row("thin, the same shape from scratch, by itself", "ptb-thin-scratch", "control"),
    Row("thin, the same shape from scratch, taught alike", "ptb-thin", "control"),
    Row(
        "tiny: the paper's quality with less",
        "ptb-tiny",
        "small",
        most_test=78.0,
        most_weights=2_500_000,
        rivals=(Rival("control"),),
    ),
    Row("tiny, the same shape from scratch, taught alike", "ptb-tiny", "control"),
)
