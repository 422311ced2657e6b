"""Fixtures: small made-up results, and the command that publishes runs."""

import pytest

from tools.results.__main__ import main


@pytest.fixture
def publish(capsys):
    """Run `python -m tools.results publish`; return exit code, output and messages."""

    def run(*arguments):
        try:
            code = main(["publish", *map(str, arguments)])
        except SystemExit as left:  # wrong options
            code = left.code
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def make():
    """Return a function that makes a result with the given models (valid, test, weights)."""

    def result(seed=0, stored=None, **models):
        summaries = {
            kind: {
                "valid_perplexity": valid,
                "test_perplexity": test,
                "weights": weights,
                "neurons": {"embedding": 251, "rnn.l0": 296, "rnn.l1": 247},
                "epochs": 100,
                "seconds": 600.0,
                "memory": 2**31,
            }
            for kind, (valid, test, weights) in models.items()
        }
        made = {
            "seed": seed,
            "settings": {"target_params": 6_170_000},
            "models": summaries,
            "curves": {},
            "environment": {"processor": "a processor", "gpu": "a GPU"},
        }
        return made if stored is None else {**made, "stored": stored}

    return result
