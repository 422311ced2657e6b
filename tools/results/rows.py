"""The rows of the tables: what the paper reports, and which run is ours.

Scores are perplexities on valid and test, or EM and F1. Weights are counted as the paper counts
them: those of language models without biases, those of readers without GloVe.
"""

import math
from dataclasses import dataclass

from tools.results.runs import Figures


@dataclass(frozen=True)
class Row:
    """A model of ours beside the paper's."""

    label: str
    run: str  # the name of a file in results/
    kind: str = "small"  # which of its models: small, dense or control
    paper: Figures | None = None
    compare: str = "second"  # the score that the difference is about
    line: str = ""  # of the figure of widths, where ours is a point
    paper_line: str = ""  # where the paper's is


@dataclass(frozen=True)
class Headline:
    """One experiment in the README's table, by the names of its runs."""

    label: str
    paper_dense: str  # its row has the paper's dense model
    iss: str
    dense: str  # our dense model, trained like the pruned one
    selection: str
    scratch: str


def _paper(first: float, second: float, sizes: str, weights: int) -> Figures:
    return Figures((first,), (second,), sizes, weights)


SCRATCH = "same sizes, from scratch"

LSTM = (
    Row(
        "dense, plain SGD",
        "ptb-dense-sgd",
        "dense",
        _paper(82.57, 78.57, "1500-1500-1500", 66_000_000),
    ),
    Row("dense, NT-ASGD", "ptb-dense-ntasgd", "dense"),
    Row("ISS", "ptb-iss", paper=_paper(82.59, 78.65, "1500-373-315", 21_811_000)),
    Row("neuron selection", "ptb-paper", paper=_paper(81.62, 78.08, "251-296-247", 6_164_132)),
    Row(SCRATCH, "ptb-paper", "control"),
    Row(f"{SCRATCH}, separate run", "ptb-paper-scratch", "control"),
)

ABLATION = tuple(
    Row(
        f"{multiple}, 1, 1, 1",
        f"ptb-ablation-{multiple}",
        paper=_paper(valid, test, sizes, weights),
        # The paper prints the test perplexity of its fourth row again in the fifth.
        compare="first" if multiple == 5 else "second",
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
TAUGHT_ISS = "ISS, with teachers, 40 epochs"
PAPER_ISS, PAPER_SELECTION = "paper: ISS", "paper: neuron selection"

HIGHWAY = (
    Row(
        "dense",
        "ptb-rhn-dense",
        "dense",
        _paper(67.9, 65.4, "830", 23_455_800),
        line="dense, 120 epochs",
        paper_line="paper: dense",
    ),
    Row(
        "ISS, with teachers",
        "ptb-rhn-iss",
        paper=_paper(68.1, 65.4, "517", 11_050_358),
        line=TAUGHT_ISS,
        paper_line=PAPER_ISS,
    ),
    Row(
        "neuron selection",
        "ptb-rhn-plain",
        paper=_paper(68.2, 65.1, "389", 7_219_062),
        line="selection, 100 epochs",
        paper_line=PAPER_SELECTION,
    ),
    Row("same width, from scratch", "ptb-rhn-scratch", "control", line="scratch, 100 epochs"),
    Row(
        "neuron selection, with teachers",
        "ptb-rhn-paper",
        paper=_paper(68.2, 65.1, "389", 7_219_062),
        line="selection, with teachers, 160 epochs",
        paper_line=PAPER_SELECTION,
    ),
    Row(
        "same width, from scratch, with teachers",
        "ptb-rhn-paper-control",
        "control",
        line="scratch, with teachers, 160 epochs",
    ),
)

# Points of the paper's figure: test perplexity of ISS at the same width, from the ISS paper, which
# does not give the valid one.
WIDTHS = (
    *(
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
                f"width {width}, neuron selection",
                f"ptb-rhn-curve-{k}",
                paper=_paper(math.nan, test, str(width), weights),
                line="selection, with teachers, 40 epochs",
                paper_line=PAPER_ISS,
            ),
            Row(
                f"width {width}, from scratch",
                f"ptb-rhn-curve-{k}",
                "control",
                line="scratch, with teachers, 40 epochs",
            ),
        )
    ),
    Row("ISS, weak penalty", "ptb-rhn-iss-weak", line=TAUGHT_ISS),
    Row("ISS, strong penalty", "ptb-rhn-iss-strong", line=TAUGHT_ISS),
)

READERS = (
    Row(
        "dense",
        "squad-dense",
        "dense",
        _paper(67.98, 77.85, "100-100-100-100-100-100", 2_690_000),
    ),
    Row("ISS", "squad-iss", paper=_paper(65.36, 75.78, "20-33-40-38-31-16", 950_000)),
    Row(
        "neuron selection", "squad-paper", paper=_paper(65.67, 75.69, "26-33-36-36-33-15", 960_000)
    ),
    Row(SCRATCH, "squad-paper", "control"),
    Row("the paper's sizes, from scratch", "squad-scratch", "dense"),
    Row("1.2M weights", "squad-thin"),
    Row(f"1.2M weights, {SCRATCH}", "squad-thin", "control"),
    Row("encoder pruned too", "squad-fast"),
    Row(f"encoder pruned too, {SCRATCH}", "squad-fast", "control"),
)

BEYOND = (
    Row("GRU", "ptb-gru"),
    Row(f"GRU, {SCRATCH}", "ptb-gru", "control"),
    Row("plain RNN", "ptb-rnn"),
    Row(f"plain RNN, {SCRATCH}", "ptb-rnn", "control"),
    Row("best at 6.16M weights", "ptb-thin"),
    Row(f"best at 6.16M, {SCRATCH}, no teacher", "ptb-thin-scratch", "control"),
    Row(f"best at 6.16M, {SCRATCH}, with teacher", "ptb-thin", "control"),
    Row("smallest", "ptb-tiny"),
    Row(f"smallest, {SCRATCH}, with teacher", "ptb-tiny", "control"),
)


ROWS = {
    (row.run, row.kind): row for row in (*LSTM, *ABLATION, *HIGHWAY, *WIDTHS, *READERS, *BEYOND)
}

HEADLINES = (
    Headline(
        "LSTM: perplexity",
        *("ptb-dense-sgd", "ptb-iss", "ptb-dense-ntasgd", "ptb-paper", "ptb-paper"),
    ),
    Headline(
        "recurrent highway network (RHN): perplexity",
        *("ptb-rhn-dense", "ptb-rhn-iss", "ptb-rhn-dense", "ptb-rhn-plain", "ptb-rhn-scratch"),
    ),
    Headline(
        "RHN with teachers: perplexity",
        *("ptb-rhn-dense", "ptb-rhn-iss", "ptb-rhn-dense"),
        *("ptb-rhn-paper", "ptb-rhn-paper-control"),
    ),
    Headline(
        "SQuAD reader (BiDAF): F1",
        *("squad-dense", "squad-iss", "squad-dense", "squad-paper", "squad-paper"),
    ),
)
