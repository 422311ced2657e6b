"""Models whose state goes to the caller: in dictionaries, dataclasses, TensorDicts, tuples."""

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from models.case import case, floats
from torch import Tensor, nn


@case(lambda: ({"obs": floats(3, 6, 5), "state_in": {"h": floats(3, 1, 8), "c": floats(3, 1, 8)}},))
class RecurrentPolicy(nn.Module):
    """As in RLlib: batch first, layers second, all in dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(5, 7)
        self.lstm = nn.LSTM(7, 8, batch_first=True)
        self.policy, self.value = nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        h, c = (batch["state_in"][key].transpose(0, 1).contiguous() for key in "hc")
        out, (h, c) = self.lstm(torch.relu(self.encoder(batch["obs"])), (h, c))
        state = {"h": h.transpose(0, 1), "c": c.transpose(0, 1)}
        return {"logits": self.policy(out), "vf": self.value(out).squeeze(-1), "state_out": state}


class Entries(MutableMapping[str, Any]):
    """A mapping that modules write into, with a batch size, as a TensorDict."""

    def __init__(self, entries: dict[str, Any], batch_size: tuple[int, ...]) -> None:
        self.entries, self.batch_size = dict(entries), batch_size

    def __getitem__(self, key: str) -> Any:
        return self.entries[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if (
            isinstance(value, Tensor)
            and tuple(value.shape[: len(self.batch_size)]) != self.batch_size
        ):
            raise RuntimeError(f"batch size {self.batch_size} does not fit {tuple(value.shape)}")
        self.entries[key] = value

    def __delitem__(self, key: str) -> None:
        del self.entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __copy__(self) -> "Entries":
        return Entries(self.entries, self.batch_size)


def rollout() -> tuple[Entries]:
    state = {"state_h": floats(2, 4, 2, 6), "state_c": floats(2, 4, 2, 6)}
    return (Entries({"observation": floats(2, 4, 5), **state}, (2, 4)),)


@case(rollout, states=("embed",))
class TensorDictPolicy(nn.Module):
    """As in TorchRL: modules write into one dictionary; states are padded to all time steps."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 6, num_layers=2, batch_first=True)
        self.head = nn.Linear(6, 2)

    def forward(self, entries: Entries) -> Entries:
        h, c = (entries[key][:, 0].transpose(0, 1).contiguous() for key in ("state_h", "state_c"))
        entries["embed"], state = self.lstm(entries["observation"], (h, c))
        after = Entries({}, entries.batch_size)
        for key, value in zip(("state_h", "state_c"), state, strict=True):
            last = value.transpose(0, 1)
            pad = [torch.zeros_like(last)] * (entries["observation"].shape[1] - 1)
            after[key] = torch.stack([*pad, last], 1)
        entries["next"] = after
        entries["action"] = self.head(entries["embed"]).tanh()
        return entries


@dataclass
class Memory:
    hidden: Tensor
    cell: Tensor


@dataclass
class Answer:
    logits: Tensor
    memory: Memory


@case(lambda: (floats(4, 5), Memory(floats(4, 8), floats(4, 8))))
class DataclassStep(nn.Module):
    """One step of a cell; its state is a dataclass, and one row for each sequence of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(5, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor, memory: Memory) -> Answer:
        h, c = self.cell(x, (memory.hidden, memory.cell))
        return Answer(self.out(h), Memory(h, c.clone()))


@case(lambda: {"x": floats(3, 5), "h": floats(3, 8), "c": floats(3, 8)}, states=("[12]",))
class WrittenStep(nn.Module):
    """One step of an LSTM written with a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(5 + 8, 4 * 8)
        self.out = nn.Linear(8, 4)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        i, f, g, o = self.gates(torch.cat([x, h], -1)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return self.out(h), h, c


@case(lambda: (floats(2, 3, 6, 6), floats(2, 8, 6, 6)), states=("1",))
class ConvGRUStep(nn.Module):
    """One step of a convolutional GRU: the neurons of its state are channels."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Conv2d(3 + 8, 2 * 8, 3, padding=1)
        self.candidate = nn.Conv2d(3 + 8, 8, 3, padding=1)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        r, z = self.gates(torch.cat([x, h], 1)).sigmoid().chunk(2, 1)
        n = self.candidate(torch.cat([x, r * h], 1)).tanh()
        h = (1 - z) * n + z * h
        return self.out(h), h


@case(lambda: (floats(2, 7, 5), floats(1, 2, 16)))
class JoinedState(nn.Module):
    """Hidden state and cell come and go as one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 8, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        h, c = state.chunk(2, -1)
        out, (h, c) = self.lstm(x, (h.contiguous(), c.contiguous()))
        return self.out(out), torch.cat([h, c], -1)
