"""The processes of a run that torchrun starts: each has one device, the same weights, and a share of every batch.

Losses are divided by the counts of the whole batch before the backward pass, so the gradient is the sum over processes,
not their mean (`gradients.py`).

In a run of one process every function returns its argument or does nothing.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar, cast
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from maskwright.core.errors import DeviceError, MaskwrightError, TrainingError
from maskwright.reporting.reporter import Reporter

_PREPARATION = timedelta(days=30)
"""Time limit of waiting for rank 0 to prepare text; torchrun ends a process whose peer died."""
_POLL_SECONDS = 0.05
_VARIABLES = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
"""torchrun sets all of them; `WORLD_SIZE` alone is often exported for something else."""

Value = TypeVar("Value")


class _Groups(NamedTuple):
    """Process groups for messages in main memory: gloo's, whichever library sums the gradients."""

    messages: dist.ProcessGroup
    preparation: dist.ProcessGroup


_groups: _Groups | None = None


def is_launched() -> bool:
    """Whether torchrun or the like started this process, perhaps as the only one for now."""
    return dist.is_initialized() or os.environ.keys() >= _VARIABLES


def world_size() -> int:
    return dist.get_world_size() if _groups else 1


def rank() -> int:
    """Return the number of this process, from 0. Rank 0 prepares text, writes files and shows progress."""
    return dist.get_rank() if _groups else 0


@contextmanager
def process_group() -> Iterator[None]:
    """Join the processes of torchrun (or of an existing default group) while the block runs.

    It does nothing in a single process, and within another such block. An error in one process ends all. Of torchrun's
    processes the first that fails raises the error, and the others, which mostly fail for the same reason, exit. In an
    existing group, or if the error is not a `MaskwrightError`, a process raises its own error and must then end, since
    the others wait for it.
    """
    global _groups
    owns = not dist.is_initialized()
    if _groups or not is_launched() or (owns and os.environ["WORLD_SIZE"] == "1"):
        yield
        return
    with _reaching_others():
        if owns:
            store, own_rank, size = _new_store()
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            dist.init_process_group(backend, store=store, rank=own_rank, world_size=size)
        _groups = _Groups(dist.new_group(backend="gloo"), dist.new_group(backend="gloo", timeout=_PREPARATION))
    try:
        try:
            yield
        except SystemExit:  # Of a run that has saved; torchrun ends all processes as soon as one has ended so.
            _wait_for_others()
            raise
        _wait_for_others()
    except MaskwrightError:
        with suppress(RuntimeError):  # The process that holds the store may be one that cannot be reached.
            if owns and store.add("failed processes", 1) > 1:
                raise SystemExit(1) from None
        raise
    else:
        if owns:
            dist.destroy_process_group()
    finally:
        _groups = None


def _new_store() -> tuple[Store, int, int]:
    """Return torchrun's store under a prefix that no earlier start of these processes used, the rank and their number.

    torchrun (PyTorch 2.13) restarts processes with the same store, which has the addresses of dead processes, and its
    count of restarts differs between machines. So rank 0 chooses a prefix and answers each process's own random number
    with it; dead processes do not confirm the answer.
    """
    store, rank, size = next(rendezvous("env://"))
    identifier = uuid4().hex
    if rank:
        store.set(f"process {rank}", identifier)
        prefix = store.get(identifier).decode()
        store.add(prefix, 1)
    else:
        prefix, confirmed = identifier, 0
        while confirmed < size - 1:
            for other in range(1, size):
                store.set(store.get(f"process {other}").decode(), prefix)
            time.sleep(_POLL_SECONDS)
            confirmed = store.add(prefix, 0)
    return PrefixStore(prefix, store), rank, size


def _wait_for_others() -> None:
    if _groups:
        with _reaching_others():
            dist.barrier(_groups.preparation)


@contextmanager
def _reaching_others() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise TrainingError(
            "another process of this run ended or cannot be reached",
            hint="The same command resumes from the last checkpoint.",
        ) from error


def own_device(device: torch.device) -> torch.device:
    """Return the GPU of this process if several processes use GPUs, else the device.

    Raises DeviceError if there are more processes than GPUs, or one GPU was named for all.
    """
    if world_size() == 1 or device.type != "cuda":
        return device
    number, gpus = int(os.environ.get("LOCAL_RANK", rank())), torch.cuda.device_count()
    if number >= gpus or str(device) != "cuda":
        raise DeviceError(
            f"each process needs a GPU of its own: this machine has {gpus}, and process {number} was given {device}",
            hint="Start at most as many processes as there are GPUs and leave --device out, or give `--device cpu`.",
        )
    return torch.device("cuda", number)


@contextmanager
def rank_zero_first() -> Iterator[None]:
    """Let rank 0 run the block before the others, which then find what it has written."""
    if rank():
        _wait_for_others()
    yield
    if rank() == 0:
        _wait_for_others()


@contextmanager
def single_process() -> Iterator[None]:
    """Compute as a run of one process while the block runs, which the other ranks do not enter.

    For the main thread; the thread that prepares batches must not ask for its rank meanwhile.
    """
    global _groups
    groups, _groups = _groups, None
    try:
        yield
    finally:
        _groups = groups


def on_rank_zero(work: Callable[[], Value]) -> Value:
    """Return what rank 0 computes as a run of one process; the others wait, however long it takes."""
    value: Any = None
    if rank() == 0:
        with single_process():
            value = work()
    _wait_for_others()
    return cast(Value, broadcast_object(value))


def microbatch_multiple(initial_ranks: int, *, dropout: bool, reporter: Reporter) -> int:
    """Return the number whose multiple the micro-batches of a step are, in a run that `initial_ranks` processes began.

    Dropout is keyed by micro-batch, so fewer processes cut the batches as more did before.
    """
    if not dropout:
        return world_size()
    if world_size() > initial_ranks:
        reporter.message(
            "warning",
            f"{world_size()} processes instead of {initial_ranks}: the dropout masks are not those of the run so far",
        )
    return max(world_size(), initial_ranks)


def broadcast_object(value: Value) -> Value:
    """Return rank 0's value."""
    return all_gather_object(value)[0]


def all_gather_object(value: Value) -> list[Value]:
    """Return the values of all ranks, in their order."""
    if not _groups:
        return [value]
    values = [value] * world_size()
    with _reaching_others():
        dist.all_gather_object(values, value, group=_groups.messages)
    return values


def all_reduce_max(number: float) -> float:
    return float(_all_reduce([number], dist.ReduceOp.MAX, torch.float64)[0])


def all_reduce_max_gathering(number: float, rank_number: float) -> tuple[float, list[float]]:
    """Return the largest number of any rank, and `rank_number`, not negative, of every rank, in one all-reduce."""
    numbers = [number] + [0.0] * world_size()
    numbers[1 + rank()] = rank_number
    largest, *of_ranks = _all_reduce(numbers, dist.ReduceOp.MAX, torch.float64)
    return largest, of_ranks


def all_reduce_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the sum of each count over all ranks, which have the same names in the same order."""
    return dict(zip(counts, _all_reduce([*counts.values()], dist.ReduceOp.SUM, torch.int64), strict=True))


def _all_reduce(numbers: list[Any], operation: dist.ReduceOp.RedOpType, dtype: torch.dtype) -> list[Any]:
    if not _groups:
        return numbers
    tensor = torch.tensor(numbers, dtype=dtype)
    with _reaching_others():
        dist.all_reduce(tensor, operation, group=_groups.messages)
    return tensor.tolist()


def broadcast(tensors: Iterable[Tensor]) -> None:
    """Overwrite tensors by rank 0's."""
    if _groups:
        with _reaching_others():
            for tensor in tensors:
                dist.broadcast(tensor, src=0)


class RankSum:
    """The sum of a tensor over all ranks, computed in place and in the background; every rank gets the same bits."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self._work: dist.Work | None = None
        if _groups:
            with _reaching_others():
                self._work = dist.all_reduce(tensor, async_op=True)

    def wait(self) -> Tensor:
        """Return the sum; a GPU waits for it before it does what is launched next."""
        if self._work is not None:
            with _reaching_others():
                self._work.wait()
        return self._tensor
