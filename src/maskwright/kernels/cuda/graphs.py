"""CUDA graphs of the encoder's forward and backward passes.

- Why: launching every kernel from Python takes the host several times as long as the GPU takes to run them.
- Sizes: a graph computes batches of one size, and smaller ones, padded with sequences that affect neither loss nor
  gradients. The first graph is larger than its batch, to fit later ones; a frequent size gets a closer graph.
- Lifetime: a graph reads and writes fixed memory. A batch is copied there; hidden states and gradients there are
  overwritten by the encoder's next pass. So a forward pass must have its backward pass, or be dropped, before that.

T tokens, B sequences, W output positions, H hidden size.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from maskwright.core.tensors import EncoderOutput, PackedBatch
from maskwright.kernels.cuda.attention import is_capturable
from maskwright.kernels.setting import has_kernels, kernels_enabled

_MAX_GRAPHS = 16
"""Graphs of an encoder at a time: each has its own gradients of all weights."""
_UNCAPTURED = 1
"""Batches without a graph before the first capture: capturing does not pay for a run of one batch."""
_MAX_PADDING_RATIO = 1.04
"""Most tokens of a graph per token of a batch that it fits."""
_FALLBACK_RATIO = 1.5
"""Most tokens of a graph per token of a batch that uses it until a graph that fits is captured."""
_CAPTURE_AFTER = 24
"""Batches of one size that use a fallback before a graph is captured for it: a capture takes as long as some steps."""
_HEADROOM = 1.08
"""Tokens of a new graph per token of its batch, where no other graph was large enough."""
_SIZE_STEPS = 64
"""Sizes are rounded up to a multiple of about 1/64 of themselves, so that few graphs are captured."""
_WARM_UPS = 2

Encode = Callable[[PackedBatch, Tensor | None], EncoderOutput]


class SplitEncoder(Protocol):
    """An encoder in two steps: `encode` is captured, `finish` is not."""

    @property
    def head_size(self) -> int:
        """Width of an attention head."""

    @property
    def attention_dropout(self) -> float:
        """Share of attention probabilities dropped."""

    def encode(self, batch: PackedBatch, output_positions: Tensor | None) -> Tensor:
        """Return the hidden states of the output positions, shape (W, H), or of all tokens."""

    def finish(self, hidden: Tensor, batch: PackedBatch, output_positions: Tensor | None) -> EncoderOutput:
        """Return the encoder's output."""


def capture(encoder: nn.Module) -> Encode:
    """Return a function that computes an encoder (a `SplitEncoder`) by CUDA graphs where that is supported."""
    if next(encoder.parameters()).device.type != "cuda":
        return encoder
    graphs = Graphs(encoder)

    def encode(batch: PackedBatch, output_positions: Tensor | None = None) -> EncoderOutput:
        hidden = graphs(batch, output_positions)
        if hidden is None:
            return cast(EncoderOutput, encoder(batch, output_positions))
        return cast(SplitEncoder, encoder).finish(hidden, batch, output_positions)

    return encode


def _is_supported(encoder: nn.Module, batch: PackedBatch) -> bool:
    split = cast(SplitEncoder, encoder)
    return (
        encoder.training
        and torch.is_grad_enabled()
        and kernels_enabled()
        and has_kernels(batch.ids.device)
        and torch.is_autocast_enabled("cuda")
        and torch.get_autocast_dtype("cuda") == torch.bfloat16
        and is_capturable(batch.max_seqlen, split.head_size, split.attention_dropout)
        # A frozen encoder has no backward pass.
        and any(parameter.requires_grad for parameter in encoder.parameters())
    )


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of a graph's batch; `outputs` is None where all tokens are output positions."""

    tokens: int
    sequences: int
    max_seqlen: int
    outputs: int | None
    drops: bool

    @classmethod
    def of(cls, batch: PackedBatch, output_positions: Tensor | None, headroom: float = 1.0) -> "Size":
        """Return the size of the graph to make for a batch, and for batches larger by a factor of `headroom`."""
        tokens = int(headroom * batch.num_tokens)
        tokens = _multiple(tokens, max(16, 1 << max(0, (tokens // _SIZE_STEPS).bit_length() - 1)))
        step = _size_step(tokens)
        padding = -(-(tokens - batch.num_tokens) // batch.max_seqlen)
        return cls(
            tokens=tokens,
            # Empty sequences cost next to nothing: they allow for batches of more sequences.
            sequences=_multiple(int(headroom * batch.num_sequences) + padding + step // 4, step),
            max_seqlen=batch.max_seqlen,
            outputs=None
            if output_positions is None
            else _multiple(int(headroom * len(output_positions)) + step // 4, step),
            drops=batch.dropout_key is not None,
        )

    def fits(self, batch: PackedBatch, output_positions: Tensor | None, most: float = _MAX_PADDING_RATIO) -> bool:
        """Return whether a graph of this size computes a batch, with at most a factor of `most` of its tokens."""
        tokens = batch.num_tokens
        padding = -(-(self.tokens - tokens) // self.max_seqlen)
        return (
            tokens <= self.tokens <= max(tokens + 16, most * tokens)
            and batch.num_sequences + padding <= self.sequences
            and batch.max_seqlen == self.max_seqlen
            and (output_positions is None) == (self.outputs is None)
            and (
                output_positions is None
                or self.outputs is None
                or len(output_positions) <= self.outputs <= 2 * len(output_positions) + 4 * _size_step(self.tokens)
            )
            and (batch.dropout_key is not None) == self.drops
        )


def _size_step(tokens: int) -> int:
    return max(16, tokens // _SIZE_STEPS)


def _multiple(count: int, step: int) -> int:
    return -(-count // step) * step


@dataclass(frozen=True, slots=True)
class _Graph:
    """A captured forward and backward pass.

    Attributes:
        batch: Where the forward pass reads the batch; the dropout key is a tensor.
        output_positions: Where it reads the output positions, shape (W,).
        hidden: The result. Shape (T, H), or (W, H).
        grad: Where the backward pass reads the gradient of `hidden`.
        gradients: Its results, by parameter.
        forward, backward: The passes.
    """

    batch: PackedBatch
    output_positions: Tensor | None
    hidden: Tensor
    grad: Tensor
    gradients: Sequence[tuple[nn.Parameter, Tensor]]
    forward: torch.cuda.CUDAGraph
    backward: torch.cuda.CUDAGraph


class Graphs:
    """The graphs of an encoder, captured as sizes come up.

    Args:
        encoder: A `SplitEncoder`.
    """

    def __init__(self, encoder: nn.Module) -> None:
        self._encoder = encoder
        self._graphs: dict[Size, _Graph] = {}
        self._seen: Counter[Size] = Counter()
        self._missed, self._is_full = 0, False
        self._aliased: list[tuple[nn.Parameter, Tensor]] = []
        self._pool: Any = None
        self._stream: Any = None
        self._leaf: Tensor | None = None

    def __call__(self, batch: PackedBatch, output_positions: Tensor | None) -> Tensor | None:
        """Return the hidden states of a batch, valid until the next call; None where there is no graph for its size."""
        if self._encoder.training and any(size.max_seqlen != batch.max_seqlen for size in self._graphs):
            # A run's next phase has longer sequences, perhaps too long for graphs, and the last one does not come back.
            self.clear()
        if not _is_supported(self._encoder, batch):
            return None
        size = self._size_for(batch, output_positions)
        if size is None:
            return None
        self._copy_aliased_gradients()
        if size not in self._graphs:
            if len(self._graphs) >= _MAX_GRAPHS:  # Of growing steps, the sizes of earlier ones do not come back.
                self.clear()
            try:
                self._graphs[size] = self._captured(size, batch, output_positions)
            except RuntimeError as error:
                if not _is_out_of_memory(error):
                    raise
                self.clear()
                self._is_full = True
                return None
        graph = self._graphs[size]
        fill(graph.batch, graph.output_positions, batch, output_positions)
        assert self._leaf is not None
        count = batch.num_tokens if output_positions is None else len(output_positions)
        return cast(Tensor, _Replay.apply(self._leaf, self, graph, count))  # type: ignore[no-untyped-call]

    def clear(self) -> None:
        """Drop all graphs and their memory; the gradients of the parameters stay."""
        self._copy_aliased_gradients()
        self._graphs, self._pool = {}, None
        self._seen.clear()

    def add_gradients(self, graph: _Graph) -> None:
        """Add the gradients of a backward pass to those of the parameters."""
        sums, others = list[Tensor](), list[Tensor]()
        for parameter, gradient in graph.gradients:
            if parameter.grad is None:
                parameter.grad = gradient
                self._aliased.append((parameter, gradient))
            else:
                sums.append(parameter.grad)
                others.append(gradient)
        if sums:
            torch._foreach_add_(sums, others)

    def _size_for(self, batch: PackedBatch, output_positions: Tensor | None) -> Size | None:
        # Of the graph to use or to make; None for none.
        if fitting := [size for size in self._graphs if size.fits(batch, output_positions)]:
            return min(fitting, key=lambda each: each.tokens)
        if fallbacks := [size for size in self._graphs if size.fits(batch, output_positions, _FALLBACK_RATIO)]:
            exact = Size.of(batch, output_positions)
            self._seen[exact] += 1
            if self._seen[exact] > _CAPTURE_AFTER and not self._is_full:
                return exact
            return min(fallbacks, key=lambda each: each.tokens)
        self._missed += 1
        return None if self._missed <= _UNCAPTURED or self._is_full else Size.of(batch, output_positions, _HEADROOM)

    def _copy_aliased_gradients(self) -> None:
        # Copy gradients of parameters that share memory with a graph, which overwrites it.
        for parameter, gradient in self._aliased:
            if parameter.grad is gradient:
                parameter.grad = gradient.clone()
        self._aliased.clear()

    def _captured(self, size: Size, batch: PackedBatch, output_positions: Tensor | None) -> _Graph:
        device = batch.ids.device
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
            # PyTorch's own stream for captures is on the GPU of the process's first capture.
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._leaf = torch.zeros((), device=device, requires_grad=True)
        inputs, positions = workspace(size, device)
        fill(inputs, positions, batch, output_positions)
        forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        # Weights that autocast caches would be made in one graph and read by others.
        with (
            torch.autocast("cuda", torch.bfloat16, cache_enabled=False),
            torch.enable_grad(),
            detached_parameters(self._encoder) as parameters,
        ):

            def compute() -> Tensor:
                return cast(SplitEncoder, self._encoder).encode(inputs, positions)

            def gradients_of(hidden: Tensor, grad: Tensor) -> tuple[Tensor | None, ...]:
                return torch.autograd.grad(hidden, list(parameters.values()), grad, allow_unused=True)

            def capturing(graph: torch.cuda.CUDAGraph) -> torch.cuda.graph:
                return torch.cuda.graph(graph, self._pool, side, capture_error_mode="thread_local")

            side, current = self._stream, torch.cuda.current_stream(device)
            side.wait_stream(current)
            with torch.cuda.stream(side):
                for _ in range(_WARM_UPS):
                    hidden = compute()
                    gradients_of(hidden, torch.zeros_like(hidden))
                    del hidden
            current.wait_stream(side)
            # A capture that fails leaves its stream the current one, without waiting for those that copy batches.
            with torch.cuda.stream(current):
                with capturing(forward):
                    hidden = compute()
                grad = torch.zeros_like(hidden)
                with capturing(backward):
                    gradients = gradients_of(hidden, grad)
        by_parameter = [
            (parameter, each) for parameter, each in zip(parameters, gradients, strict=True) if each is not None
        ]
        return _Graph(inputs, positions, hidden.detach(), grad, by_parameter, forward, backward)


def _is_out_of_memory(error: BaseException | None) -> bool:
    # The error that ends a capture may hide its cause.
    while error is not None:
        if "out of memory" in str(error).lower():
            return True
        error = error.__context__
    return False


@contextlib.contextmanager
def detached_parameters(module: nn.Module) -> Iterator[dict[nn.Parameter, nn.Parameter]]:
    """Replace a module's parameters by other tensors over the same memory while the block runs.

    Autograd remembers the stream on which a parameter was used first, and would let a capture wait for it.

    Yields:
        For each parameter that requires a gradient the one in its place.
    """
    slots = [(each, name) for each in module.modules() for name in each._parameters]
    originals = {slot: slot[0]._parameters[slot[1]] for slot in slots}
    others = {each: nn.Parameter(each.detach(), each.requires_grad) for each in originals.values() if each is not None}
    try:
        for (each, name), parameter in originals.items():
            each._parameters[name] = None if parameter is None else others[parameter]
        yield {parameter: other for parameter, other in others.items() if parameter.requires_grad}
    finally:
        for (each, name), parameter in originals.items():
            each._parameters[name] = parameter


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, leaf: Tensor, graphs: Graphs, graph: _Graph, count: int) -> Tensor:
        ctx.arguments = graphs, graph, count
        graph.forward.replay()
        return graph.hidden[:count]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, ...]:
        graphs, graph, count = ctx.arguments
        graph.grad[:count].copy_(grads[0])
        graph.grad[count:].zero_()
        graph.backward.replay()
        graphs.add_gradients(graph)
        return None, None, None, None


def workspace(size: Size, device: torch.device) -> tuple[PackedBatch, Tensor | None]:
    """Return memory for batches and output positions of a size."""

    def zeros(count: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.zeros(count, dtype=dtype, device=device)

    batch = PackedBatch(
        ids=zeros(size.tokens),
        position_ids=zeros(size.tokens),
        segment_ids=zeros(size.tokens),
        cu_seqlens=zeros(size.sequences + 1, torch.int32),
        max_seqlen=size.max_seqlen,
        dropout_key=torch.zeros((), dtype=torch.int64, device=device) if size.drops else None,
    )
    return batch, None if size.outputs is None else zeros(size.outputs)


def fill(to: PackedBatch, to_positions: Tensor | None, batch: PackedBatch, output_positions: Tensor | None) -> None:
    """Copy a batch into a workspace; the tokens behind it become sequences of at most `max_seqlen`, the rest empty."""
    tokens, sequences = batch.num_tokens, batch.num_sequences
    for name in ("ids", "position_ids", "segment_ids"):
        getattr(to, name)[:tokens].copy_(getattr(batch, name))
    to.cu_seqlens[:sequences].copy_(batch.cu_seqlens[:-1])
    ends = torch.arange(len(to.cu_seqlens) - sequences, dtype=torch.int32, device=to.cu_seqlens.device)
    ends.mul_(to.max_seqlen).add_(tokens)
    torch.clamp(ends, max=to.num_tokens, out=to.cu_seqlens[sequences:])
    if isinstance(to.dropout_key, Tensor) and batch.dropout_key is not None:
        to.dropout_key.fill_(batch.dropout_key)
    if output_positions is not None and to_positions is not None:
        to_positions[: len(output_positions)].copy_(output_positions)
        to_positions[len(output_positions) :].zero_()
