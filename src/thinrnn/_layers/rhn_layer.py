"""What a recurrent highway network is to thinrnn: one space, the width of its state."""

from collections.abc import Iterator
from typing import Any

from thinrnn._layers.base import Edit, Intake, Layer, argument
from thinrnn.nn.rhn import RHN


class RHNLayer(Layer):
    """Neuron j owns row j of h and of t in every matrix, and column j of all that read the state.

    Every depth adds to the state that it read, so all depths share one row of neurons.
    """

    module: RHN

    def build(self) -> None:
        rhn = self.module
        n, depths = rhn.weight_ih.shape[0] // 2, range(rhn.depth)
        made = ["weight_ih", *(f"{w}_d{d}" for w in ("weight_hh", "bias") for d in depths)]
        self.add("input", rhn.weight_ih.shape[1], ("weight_ih", 1, (0,), "read"))
        rows = [(name, 0, (0, n), "produce") for name in made]
        columns = [(f"weight_hh_d{d}", 1, (0,), "read") for d in depths]
        self.add("l0", n, *rows, *columns)  # type: ignore[arg-type]

    @property
    def state_spaces(self) -> list[list[str]]:
        return [["l0"]]

    def intakes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Intake]:
        yield from super().intakes(args, kwargs)
        hx = argument(args, kwargs, 1, "hx")
        if hx is not None:
            yield Intake("state", "l0", hx[0])

    def edit(self, result: Any, change: Edit) -> Any:
        output, h_n = result
        return change("l0", output), change("l0", h_n)

    def resize(self) -> None:
        rows, self.module.input_size = self.module.weight_ih.shape
        self.module.hidden_size = rows // 2
