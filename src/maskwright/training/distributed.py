"""The processes of a run that torchrun starts: each has one device, the same weights, and a share of every batch.

Gradients are summed by one all-reduce of all of them, when a step's micro-batches are done. That is a few lines, beside
DistributedDataParallel's wrapper, hooks and `no_sync`, which do not know losses that are divided by global counts,
captured CUDA graphs or parameters without a gradient. DistributedDataParallel would overlap the all-reduce with the
backward pass of the last micro-batch; with several micro-batches per step that hides little, and on a CPU nothing,
since the cores are busy.

In a run of one process every function returns its argument or does nothing.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from maskwright.core.errors import DeviceError, TrainingError

_PREPARATION = timedelta(days=30)
"""Time limit of waiting for rank 0 to prepare text; torchrun ends a process whose peer died."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Groups:
    """Process groups for messages in main memory: gloo's, whichever library sums the gradients."""

    messages: dist.ProcessGroup
    preparation: dist.ProcessGroup


_groups: _Groups | None = None


def world_size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if _groups else 1


def rank() -> int:
    """Return the number of this process, from 0. Rank 0 prepares text, writes files and shows progress."""
    return dist.get_rank() if _groups else 0


@contextmanager
def joined() -> Iterator[None]:
    """Join the processes of torchrun (or of an existing default group) while the block runs.

    It does nothing in a single process, and within another such block. An error in one process ends all: only the first
    process that fails raises it, the others exit.
    """
    global _groups
    if _groups or not (dist.is_available() and (dist.is_initialized() or int(os.environ.get("WORLD_SIZE", "1")) > 1)):
        yield
        return
    owns = not dist.is_initialized()
    if owns:
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    store = dist.distributed_c10d._get_default_store()
    _groups = _Groups(dist.new_group(backend="gloo"), dist.new_group(backend="gloo", timeout=_PREPARATION))
    try:
        try:
            yield
        except SystemExit:  # An interrupted command; torchrun ends all processes as soon as one has ended so.
            _wait_for_others()
            raise
        _wait_for_others()
    except Exception:
        if store.add("failed processes", 1) > 1:
            raise SystemExit(1) from None
        raise
    else:
        if owns:
            dist.destroy_process_group()
    finally:
        _groups = None


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
            todo="The same command resumes from the last checkpoint.",
        ) from error


def own_device(device: torch.device) -> torch.device:
    """Return the GPU of this process if several processes use GPUs, else the device.

    Raises:
        DeviceError: If there are more processes than GPUs, or one GPU was named for all.
    """
    if world_size() == 1 or device.type != "cuda":
        return device
    number, gpus = int(os.environ.get("LOCAL_RANK", rank())), torch.cuda.device_count()
    if number >= gpus or str(device) != "cuda":
        raise DeviceError(
            f"each process needs a GPU of its own: this machine has {gpus}, and process {number} was given {device}",
            todo="Start at most as many processes as there are GPUs and leave --device out, or give `--device cpu`.",
        )
    return torch.device("cuda", number)


@contextmanager
def first_before_others() -> Iterator[None]:
    """Let rank 0 run the block before the others, which then find what it has written."""
    if rank():
        _wait_for_others()
    yield
    if rank() == 0:
        _wait_for_others()


def from_first(value: Value) -> Value:
    """Return rank 0's value."""
    if not _groups:
        return value
    values = [value]
    with _reaching_others():
        dist.broadcast_object_list(values, src=0, group=_groups.messages)
    return values[0]


def gathered(value: Value) -> list[Value]:
    """Return the values of all ranks, in their order."""
    if not _groups:
        return [value]
    values = [value] * world_size()
    with _reaching_others():
        dist.all_gather_object(values, value, group=_groups.messages)
    return values


def largest(number: float) -> float:
    """Return the largest number of any rank."""
    if not _groups:
        return number
    tensor = torch.tensor(number, dtype=torch.float64)
    with _reaching_others():
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=_groups.messages)
    return float(tensor)


def copy_from_first(tensors: Iterable[Tensor]) -> None:
    """Overwrite tensors by rank 0's."""
    if _groups:
        with _reaching_others():
            for tensor in tensors:
                dist.broadcast(tensor, src=0)


def sum_over_ranks(tensors: list[Tensor]) -> None:
    """Add up tensors of one type over all ranks, in place, in one all-reduce; every rank gets the same bits."""
    if _groups and tensors:
        sizes = [tensor.numel() for tensor in tensors]
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with _reaching_others():
            dist.all_reduce(flat)
        parts = flat.split_with_sizes(sizes)
        torch._foreach_copy_(tensors, [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)])
