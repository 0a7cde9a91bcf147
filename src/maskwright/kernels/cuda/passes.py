"""Forward and backward passes of an encoder, captured as CUDA graphs: launching every kernel from Python takes a host
several times as long as a GPU takes to run them.

A graph computes on one size of batch, and on smaller ones: what they lack is run over like filler, which no loss and no
gradient sees, and on which no mask of dropout hangs. So the first graph is made with room for the batches after it, and
one of a closer fit where a size comes often.

What a graph needs stands at fixed places: a batch is copied there, gradients come from there. A forward pass must have
its backward pass, or be forgotten, before the encoder's next one.

T tokens, S runs, W tokens read, H hidden size.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from maskwright.core.tensors import FlatBatch
from maskwright.kernels.cuda.pass_sizes import PassSize
from maskwright.kernels.cuda.runs import GpuRuns, starts_of
from maskwright.kernels.dropout import DropoutKey

_MOST_KEPT = 16
"""Graphs of an encoder: each has its own gradients of all weights."""
_UNCAPTURED = 1
"""Batches that no graph takes are computed without one this often: a run's only one need not be captured."""
_LOOSE = 1.5
"""Tokens of a graph over those of a batch that it is used for until a closer one is made. Reckoned, as the numbers of
batches here: no run of a GPU has been timed with others."""
_OFTEN = 24
"""A size that came so often in too large a graph gets its own: capturing takes as long as some steps."""
_ROOM = 1.08
"""Tokens of a graph over those of the batch that it was made for, where no other had room."""
_WARM_UPS = 2

Compute = Callable[[FlatBatch, GpuRuns, DropoutKey | None, Tensor | None], Tensor]
"""Computes all layers: see `Encoder.layers`."""


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Where a graph reads.

    Attributes:
        batch: The tokens.
        runs: Their runs.
        key: A scalar; None where nothing is dropped.
        read: The places that are read, shape (W,); None where all are.
    """

    batch: FlatBatch
    runs: GpuRuns
    key: DropoutKey | None
    read: Tensor | None


@dataclass(frozen=True, slots=True)
class _Pair:
    """A captured forward and backward pass.

    Attributes:
        inputs: Where the forward pass reads.
        hidden: What it gives. Shape (T, H), or (W, H).
        slope: Where the slope of that is put.
        gradients: What the backward pass gives, with the parameters that have a gradient.
        forward: The forward pass.
        backward: The backward pass.
    """

    inputs: _Inputs
    hidden: Tensor
    slope: Tensor
    gradients: Sequence[tuple[nn.Parameter, Tensor]]
    forward: torch.cuda.CUDAGraph
    backward: torch.cuda.CUDAGraph


class CapturedPasses:
    """Computes an encoder's layers by graphs where it has one, or makes one.

    Args:
        compute: What is captured.
        module: Whose parameters it uses, and gets gradients.
    """

    def __init__(self, compute: Compute, module: nn.Module) -> None:
        self._compute, self._module = compute, module
        self._pairs: dict[PassSize, _Pair] = {}
        self._seen: Counter[PassSize] = Counter()
        self._missed, self._is_full = 0, False
        self._given: list[tuple[nn.Parameter, Tensor]] = []
        self._pool: Any = None
        self._leaf: Tensor | None = None

    def __call__(self, batch: FlatBatch, key: DropoutKey | None, read: Tensor | None) -> Tensor | None:
        """Return the hidden states of a stream by a graph; None where there is none for its size yet.

        Args:
            batch: In training, on a GPU, in products of bfloat16, its `row_slots` given.
            key: Of dropout; None drops nothing.
            read: As in `Encoder.forward`.

        Returns:
            Shape (T, H), or (W, H). Valid until the next call.
        """
        if any(size.row_length != batch.row_length for size in self._pairs):
            self.forget()  # A run's next phase has longer sequences, and does not come back.
        size = self._size_for(batch, key, read)
        if size is None:
            return None
        self._keep_given()
        if size not in self._pairs:
            try:
                self._pairs[size] = self._captured(size, batch, key, read)
            except RuntimeError as error:
                if not _is_short_of_memory(error):
                    raise
                # Without graphs it goes on, more slowly.
                self.forget()
                self._is_full = True
                return None
        pair = self._pairs[size]
        _fill(pair.inputs, batch, key, read)
        assert self._leaf is not None
        count = len(batch.ids) if read is None else len(read)
        return cast(Tensor, _Replayed.apply(self._leaf, self, pair, count))  # type: ignore[no-untyped-call]

    def forget(self) -> None:
        """Drop all graphs and their memory; gradients that were given stay."""
        self._keep_given()
        self._pairs, self._pool = {}, None  # Memory that no graph uses any more takes no others.

    def _size_for(self, batch: FlatBatch, key: DropoutKey | None, read: Tensor | None) -> PassSize | None:
        # Of the graph to use or to make; None for none.
        close = [size for size in self._pairs if size.takes(batch, key, read)]
        if close:
            return min(close, key=lambda each: each.tokens)
        is_full = self._is_full or len(self._pairs) >= _MOST_KEPT
        loose = [size for size in self._pairs if size.takes(batch, key, read, _LOOSE)]
        if loose:
            exact = PassSize.of(batch, key, read)
            self._seen[exact] += 1
            return exact if self._seen[exact] > _OFTEN and not is_full else min(loose, key=lambda each: each.tokens)
        self._missed += 1
        return None if self._missed <= _UNCAPTURED or is_full else PassSize.of(batch, key, read, _ROOM)

    def _keep_given(self) -> None:
        # Gradients that stand where the next pass writes are moved: of micro-batches before, not stepped on yet.
        for parameter, gradient in self._given:
            if parameter.grad is gradient:
                parameter.grad = gradient.clone()
        self._given.clear()

    def give(self, pair: _Pair) -> None:
        """Add the gradients of a backward pass to those of the parameters."""
        own, others = list[Tensor](), list[Tensor]()
        for parameter, gradient in pair.gradients:
            if parameter.grad is None:
                parameter.grad = gradient
                self._given.append((parameter, gradient))
            else:
                own.append(parameter.grad)
                others.append(gradient)
        if own:
            torch._foreach_add_(own, others)

    def _captured(self, size: PassSize, batch: FlatBatch, key: DropoutKey | None, read: Tensor | None) -> _Pair:
        device = batch.ids.device
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
            self._leaf = torch.zeros((), device=device, requires_grad=True)
        inputs = _room(size, device)
        _fill(inputs, batch, key, read)
        forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        # What autocast keeps of a weight would be made in one graph and read by others.
        with (
            torch.autocast("cuda", torch.bfloat16, cache_enabled=False),
            torch.enable_grad(),
            _stand_ins(self._module) as parameters,
        ):

            def compute() -> Tensor:
                return self._compute(inputs.batch, inputs.runs, inputs.key, inputs.read)

            def gradients_of(hidden: Tensor, slope: Tensor) -> tuple[Tensor | None, ...]:
                return torch.autograd.grad(hidden, list(parameters.values()), slope, allow_unused=True)

            aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            aside.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(aside):
                for _ in range(_WARM_UPS):
                    hidden = compute()
                    gradients_of(hidden, torch.zeros_like(hidden))
                    del hidden
            torch.cuda.current_stream(device).wait_stream(aside)
            with torch.cuda.graph(forward, pool=self._pool, capture_error_mode="thread_local"):
                hidden = compute()
            slope = torch.zeros_like(hidden)
            with torch.cuda.graph(backward, pool=self._pool, capture_error_mode="thread_local"):
                gradients = gradients_of(hidden, slope)
        given = [(own, each) for own, each in zip(parameters, gradients, strict=True) if each is not None]
        return _Pair(inputs, hidden.detach(), slope, given, forward, backward)


def _is_short_of_memory(error: BaseException | None) -> bool:
    # What ends a capture may hide what broke it.
    while error is not None:
        if "out of memory" in str(error).lower():
            return True
        error = error.__context__
    return False


@contextlib.contextmanager
def _stand_ins(module: nn.Module) -> Iterator[dict[nn.Parameter, nn.Parameter]]:
    """Put other tensors over the same memory in the place of a module's parameters while the block runs.

    Autograd remembers of each parameter the stream on which it was used first, and would let a capture wait for it.

    Returns:
        For each parameter that has a gradient what stands in for it.
    """
    places = [(each, name) for each in module.modules() for name in each._parameters]
    own = {place: place[0]._parameters[place[1]] for place in places}
    others = {each: nn.Parameter(each.detach(), each.requires_grad) for each in own.values() if each is not None}
    try:
        for (each, name), parameter in own.items():
            each._parameters[name] = None if parameter is None else others[parameter]
        yield {parameter: other for parameter, other in others.items() if parameter.requires_grad}
    finally:
        for (each, name), parameter in own.items():
            each._parameters[name] = parameter


class _Replayed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, leaf: Tensor, passes: CapturedPasses, pair: _Pair, count: int) -> Tensor:
        ctx.told = passes, pair, count
        pair.forward.replay()
        return pair.hidden[:count]

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[None, ...]:
        passes, pair, count = ctx.told
        pair.slope[:count].copy_(slopes[0])
        pair.slope[count:].zero_()
        pair.backward.replay()
        passes.give(pair)
        return None, None, None, None


def _room(size: PassSize, device: torch.device) -> _Inputs:
    def zeros(count: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.zeros(count, dtype=dtype, device=device)

    batch = FlatBatch(
        ids=zeros(size.tokens),
        position_ids=zeros(size.tokens),
        segment_ids=zeros(size.tokens),
        sequence_ids=zeros(0),
        first_tokens=zeros(0),
        row_length=size.row_length,
        num_tokens=size.tokens,
        row_slots=zeros(0),
        num_rows=size.rows,
    )
    runs = GpuRuns(
        offsets=zeros(size.runs + 1, torch.int32),
        slots=zeros(size.runs),
        longest=size.row_length,
        row_length=size.row_length,
        num_rows=size.rows,
    )
    key = DropoutKey.on(device, 0) if size.drops else None
    return _Inputs(batch, runs, key, None if size.read is None else zeros(size.read))


def _fill(inputs: _Inputs, batch: FlatBatch, key: DropoutKey | None, read: Tensor | None) -> None:
    # What stands behind the last token, of batches before, is as good as any filler.
    tokens, runs = len(batch.ids), len(batch.first_tokens)
    assert batch.row_slots is not None
    assert batch.row_length is not None
    for name in ("ids", "position_ids", "segment_ids"):
        getattr(inputs.batch, name)[:tokens].copy_(getattr(batch, name))
    offsets, slots = inputs.runs.offsets, inputs.runs.slots
    starts = starts_of(batch)
    offsets[:runs].copy_(starts)
    ends = torch.arange(len(offsets) - runs, dtype=torch.int32, device=offsets.device)
    ends.mul_(batch.row_length).add_(batch.num_tokens)
    torch.clamp(ends, max=len(inputs.batch.ids), out=offsets[runs:])
    torch.index_select(batch.row_slots, 0, starts, out=slots[:runs])
    slots[runs:].zero_()
    if key is not None and inputs.key is not None:
        inputs.key.tensor.copy_(key.tensor)
    if read is not None and inputs.read is not None:
        inputs.read[: len(read)].copy_(read)
        inputs.read[len(read) :].zero_()
