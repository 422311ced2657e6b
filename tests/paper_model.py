"""The language model of the paper's Table 1, at any size, and its plan."""

from torch import Tensor, nn

from thinrnn import Group, Plan, Slice


class LanguageModel(nn.Module):
    def __init__(
        self, words: int, inputs: int, sizes: tuple[int, int], device: str | None = None
    ) -> None:
        super().__init__()
        first, second = sizes
        self.embedding = nn.Embedding(words, inputs, device=device)
        self.lstm1 = nn.LSTM(inputs, first, device=device)
        self.lstm2 = nn.LSTM(first, second, device=device)
        self.decoder = nn.Linear(second, words, device=device)

    def forward(self, words: Tensor) -> Tensor:
        return self.decoder(self.lstm2(self.lstm1(self.embedding(words))[0])[0])


def dense_model(device: str | None = None) -> LanguageModel:
    return LanguageModel(10_000, 1500, (1500, 1500), device)


def paper_plan(inputs: int = 1500, first: int = 1500, second: int = 1500) -> Plan:
    """The plan, written by hand."""
    return Plan(
        (
            Group(
                "embedding",
                inputs,
                (
                    Slice("embedding.weight", 1, "produce", ((0, 0, inputs),)),
                    Slice("lstm1.weight_ih_l0", 1, "read", ((0, 0, inputs),)),
                ),
            ),
            Group("lstm1.l0", first, _layer("lstm1", first, "lstm2.weight_ih_l0")),
            Group("lstm2.l0", second, _layer("lstm2", second, "decoder.weight")),
        )
    )


def _layer(name: str, size: int, reader: str) -> tuple[Slice, ...]:
    rows = tuple((k * size, 0, size) for k in range(4))
    made = [
        Slice(f"{name}.{kind}_l0", 0, "produce", rows)
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ]
    columns = ((0, 0, size),)
    return (
        *made,
        Slice(f"{name}.weight_hh_l0", 1, "read", columns),
        Slice(reader, 1, "read", columns),
    )
