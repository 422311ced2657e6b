"""The processes that train one run together, started by torchrun or accelerate launch.

    batch ─┬─ part ── model ─┬─ mean of the gradients ── the same step in every process
           ╰─ part ── model ─╯

The first process evaluates, decides and writes; the others follow. Decisions travel over gloo, also
where gradients travel from GPU to GPU: no step waits for the device.
"""

import contextlib
import hashlib
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed import ReduceOp
from torch.nn.parallel import DistributedDataParallel

from thinrnn._extras import require
from thinrnn._model.tree import map_tensors, tensors_in
from thinrnn.lab.run.errors import InputError, LostProcessError

T = TypeVar("T")
PATIENCE = timedelta(hours=1)  # while the first process evaluates or prepares data


class Processes:
    """One process: nothing to share, nobody to wait for."""

    rank, count = 0, 1

    @property
    def is_first(self) -> bool:
        """Whether this process evaluates, decides and writes."""
        return self.rank == 0

    def check(self, batch: int) -> None:
        """Refuse a batch that cannot be shared equally."""
        if batch % self.count:
            raise InputError(
                f"batch={batch} cannot be shared equally by {self.count} processes: "
                f"set batch={-(-batch // self.count) * self.count}, or start another number."
            )

    def part(self, tensor: Tensor, dim: int) -> Tensor:
        """Return this process's sequences of a tensor that has those of all."""
        if self.count == 1:
            return tensor
        return tensor.chunk(self.count, dim)[self.rank].contiguous()

    def wrapped(self, model: nn.Module) -> nn.Module:
        """Return what to call for an output whose gradients are averaged over all processes."""
        return model

    def whole(self, tree: Any, dim: int) -> Any:
        """Return tensors with the sequences of all processes."""
        return tree

    def of_first(self, make: Callable[[], T]) -> T:
        """Return what `make` returns in the first process; it is called nowhere else."""
        return make()

    def gathered(self, value: T) -> list[T]:
        """Return the values of all processes by rank."""
        return [value]

    def mean_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its mean over all processes."""
        return tensor

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return for each flag whether a process has it set."""
        return flags

    @contextlib.contextmanager
    def in_turn(self) -> Iterator[None]:
        """Let the first process through the block before the others, which find its files."""
        yield

    def wait(self) -> None:
        """Wait until all processes are here."""

    def close(self) -> None:
        """Leave the others; they go on without waiting for this one."""


class Ranks(Processes):
    """One of several processes."""

    def __init__(self, *, on_cpu: bool) -> None:
        require("recipes", "accelerate")
        from accelerate import PartialState

        self.state = PartialState(cpu=on_cpu, timeout=PATIENCE)
        self.rank, self.count = self.state.process_index, self.state.num_processes
        self.host = distributed.new_group(backend="gloo", timeout=PATIENCE)

    def wrapped(self, model: nn.Module) -> nn.Module:
        devices = [torch.cuda.current_device()] if next(model.parameters()).is_cuda else None
        with warnings.catch_warnings():  # newer versions of torch have two names for the option
            warnings.simplefilter("ignore", FutureWarning)
            return DistributedDataParallel(model, device_ids=devices, broadcast_buffers=False)

    def whole(self, tree: Any, dim: int) -> Any:
        parts = self.gathered(map_tensors(tree, lambda tensor: tensor.detach().cpu()))
        columns = iter(list(zip(*map(tensors_in, parts), strict=True)))
        return map_tensors(tree, lambda tensor: torch.cat(next(columns), dim))

    def of_first(self, make: Callable[[], T]) -> T:
        found = [make() if self.is_first else None]
        distributed.broadcast_object_list(found, group=self.host)
        return found[0]  # type: ignore[return-value]

    def gathered(self, value: T) -> list[T]:
        found: list[Any] = [None] * self.count
        distributed.all_gather_object(found, value, group=self.host)
        return found

    def mean_(self, tensor: Tensor) -> Tensor:
        distributed.all_reduce(tensor)
        return tensor.div_(self.count)

    def any(self, *flags: bool) -> tuple[bool, ...]:
        most = torch.tensor(flags, dtype=torch.uint8)
        distributed.all_reduce(most, ReduceOp.MAX, group=self.host)
        return tuple(bool(flag) for flag in most)

    @contextlib.contextmanager
    def in_turn(self) -> Iterator[None]:
        with self.state.main_process_first():
            yield

    def wait(self) -> None:
        distributed.barrier(group=self.host)

    def close(self) -> None:
        self.state.destroy_process_group()


ALONE = Processes()


def started(*, on_cpu: bool) -> Processes:
    """Return the processes that a launcher has started, this one among them."""
    on_cpu = on_cpu or not torch.cuda.is_available()
    return Ranks(on_cpu=on_cpu) if is_launched() else ALONE


def is_launched() -> bool:
    """Whether a launcher has started several processes."""
    return "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextlib.contextmanager
def together(processes: Processes, advice: str) -> Iterator[None]:
    """Inside `with`, a process that is gone stops this one with one line, which ends in advice."""
    try:
        yield
    except RuntimeError as error:
        if processes.count == 1 or not _is_lost(error):
            raise
        # the launcher ends this one too, but not before it has said why
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise LostProcessError(
            f"one of the {processes.count} processes has ended, so the others stop; {advice}"
        ) from error


def _is_lost(error: RuntimeError) -> bool:
    return isinstance(error, distributed.DistError) or "gloo" in str(error)


def says(message: str) -> bool:
    """Return whether this process is to print a message; of several, the first to ask is."""
    if not is_launched():
        return True
    key = f"thinrnn/{hashlib.sha256(message.encode()).hexdigest()}"
    try:
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        wait = timedelta(seconds=5)
        store = distributed.TCPStore(*place, is_master=False, timeout=wait)  # type: ignore[attr-defined]
        return store.add(key, 1) == 1
    except (LookupError, ValueError, RuntimeError):  # the store is gone: better twice than never
        return True
