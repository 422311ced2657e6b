"""What to measure."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Wanted:
    """What to measure; the first model is what the others are compared with."""

    runtimes: list[str]
    threads: list[int]
    shapes: list[tuple[int, int]]  # batch, steps
    seconds: float = 3.0  # for each model, runtime, shape and number of threads
    text: Path | None = None  # on which perplexity is measured

    @property
    def passes(self) -> int:
        """How often at least each runtime has its turn."""
        return 15 if self.seconds else 3

    @property
    def settings(self) -> list[tuple[int, int, bool]]:
        """Batch, steps and whether caches are cold: for streams, they are so as well."""
        return [
            (b, t, cold) for b, t in self.shapes for cold in (False, True) if t == 1 or not cold
        ]
