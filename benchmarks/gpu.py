"""The step on a GPU: base, whole blocks of 128 and of 512, bf16 autocast, dropout 0.1, against transformers tuned.

Tuned is: `torch.compile` of the whole model, bf16 autocast, fused AdamW, no padding and no mask, tensors of one shape,
no loss read between the steps of a pass. It is the bare step: `Trainer` adds its loop to that. Needs a CUDA GPU, and
has not been run on one: only its parts are tested, on a processor.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks import contest, peers
from benchmarks.bf16 import LOSS
from benchmarks.goals import OWN_BF16, OWN_PLAIN, TUNED, goal
from benchmarks.own import CLIP, OwnStep
from benchmarks.report import Check, Report, Table
from benchmarks.settings import Settings
from benchmarks.shapes import BASE, Shape, fitted
from benchmarks.timing import Side, Spread, interleave, ratios
from benchmarks.turns import filled, real_tokens
from benchmarks.workloads import Source, examples_of, mlm_recipe, text_for
from maskwright.encoder.compiled_blocks import Backend
from maskwright.training.batches import StepBatch
from maskwright.training.compiling import compile_model
from maskwright.training.device import multiplies_bf16
from maskwright.training.probe import probe_matmul
from maskwright.training.workload import Workload, build_workload

LENGTHS = (128, 512)
# As those of `contest`, with the length of the blocks.
COLUMNS = ("model", "length", *contest.COLUMNS[1:])

_TOKENS = 32768
"""Tokens of a step, all in one micro-batch on both sides. Reckoned, not measured: transformers' logits of all places
and their gradients take some 12 GB of a GPU's memory, its activations 10."""
_STEPS, _ROUNDS = 10, 7
_DROPOUT = 0.1


def run(settings: Settings) -> Report:
    """Compare and measure on the first CUDA GPU; without one, say so."""
    if not torch.cuda.is_available():
        return Report(tables=(), notes=("This row needs a CUDA GPU, and there is none here.",))
    device = torch.device("cuda")
    if not multiplies_bf16(device):
        return Report(tables=(), notes=("This row needs a GPU that multiplies bfloat16 matrices by itself.",))
    return measured(device, settings)


def measured(
    device: torch.device, settings: Settings, *, backend: Backend = "inductor", lengths: Sequence[int] = LENGTHS
) -> Report:
    """Compare both sides on a device.

    Args:
        device: Where.
        settings: Tiny ones show that it works.
        backend: For `torch.compile`, on both sides.
        lengths: Of the blocks.
    """
    shape = fitted(BASE, settings)
    outcomes = [_measure(shape, length, device, settings, backend) for length in lengths]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "a processor, not a GPU"
    told = [f"Blocks of {each.length}: compiled {each.compiled}." for each in outcomes]
    wanted = {each.length: goal("gpu", str(each.length), "peak") for each in outcomes}
    goals = ", ".join(f"{share} in blocks of {length}" for length, share in wanted.items() if share)
    return Report(
        tables=(
            Table(
                title="",
                columns=COLUMNS,
                rows=tuple(line for outcome in outcomes for line in _lines(shape, outcome)),
                words=(0, 2),
            ),
        ),
        measurements=tuple(
            {
                "model": shape.name,
                "length": outcome.length,
                "device": name,
                "side": side,
                "seconds": seconds,
                "tokens": outcome.tokens[side],
                "fill": outcome.fill[side],
                "dropout": _DROPOUT,
                "peak": outcome.peak,
                "flops": outcome.flops if side == OWN_BF16 else None,
                "ratio": None if side == OWN_BF16 else outcome.ratio(side).median,
            }
            for outcome in outcomes
            for side, seconds in outcome.seconds.items()
        ),
        checks=tuple(_check(outcome) for outcome in outcomes),
        notes=(
            f"On {name}; the peak is its own product of large bf16 matrices, "
            + ", ".join(f"{outcome.peak / 1e12:.3g}" for outcome in outcomes)
            + " TFLOP/s."
            + f" The goal is a share of {goals} of it." * bool(goals),
            contest.DROPOUT_NOTE,
            contest.PEAK_NOTE,
            *told,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What a length gave.

    Attributes:
        length: Tokens of a block.
        seconds: Of each round, by side.
        tokens: Real tokens of each round, by side.
        fill: Share of real tokens in what is computed on, by side.
        flops: Operations that our pass needs, of each round.
        peak: Operations a second of the fastest bf16 product.
        losses: Ours and theirs on the first batch, dropout off.
        compiled: What came of compiling our blocks.
    """

    length: int
    seconds: Mapping[str, list[float]]
    tokens: Mapping[str, list[int]]
    fill: Mapping[str, float]
    flops: list[float]
    peak: float
    losses: tuple[float, float]
    compiled: str

    def speed(self, side: str) -> list[float]:
        """Real tokens a second of each round."""
        rounds = zip(self.seconds[side], self.tokens[side], strict=True)
        return [tokens / seconds for seconds, tokens in rounds]

    def ratio(self, side: str) -> Spread:
        """How many times as fast our compiled step is as another side."""
        return ratios(self.speed(OWN_BF16), self.speed(side))

    @property
    def utilisation(self) -> Spread:
        """Share of the peak that our useful operations reach."""
        rounds = zip(self.seconds[OWN_BF16], self.flops, strict=True)
        return Spread.of([flops / seconds / self.peak for seconds, flops in rounds])


class TunedPeer:
    """transformers' training step as one tunes it for a GPU.

    Args:
        model: In training mode.
        device: Where.
        backend: For `torch.compile`.
    """

    def __init__(self, model: Any, device: torch.device, backend: Backend) -> None:
        self.model, self._device = model.to(device), device
        self._compiled: Any = torch.compile(self.model, backend=backend)
        self._optimizer = peers.optimizer_for(self.model)

    def take(self, batches: Sequence[peers.Batch]) -> None:
        """Take a step on each batch; nothing is read from the device."""
        for batch in batches:
            with self._autocast():
                loss: Tensor = self._compiled(**self._moved(batch)).loss
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            self._optimizer.step()
            self._optimizer.zero_grad()

    def loss(self, batch: peers.Batch) -> float:
        """Return the loss of a batch, dropout off."""
        self.model.eval()
        with torch.no_grad(), self._autocast():
            loss = float(self.model(**self._moved(batch)).loss)
        self.model.train()
        return loss

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self._device.type, torch.bfloat16)

    def _moved(self, batch: peers.Batch) -> dict[str, Tensor]:
        return {name: values.to(self._device, non_blocking=True) for name, values in batch.items()}


@dataclass(frozen=True, slots=True)
class _Blocks(Source):
    """Steps of one micro-batch each, however large."""

    def workload(self, seed: int = 0) -> Workload:
        return build_workload(self.recipe, self.text, seed=seed, held_out_tokens=0, tokens_per_microbatch=2 * _TOKENS)


def _measure(shape: Shape, length: int, device: torch.device, settings: Settings, backend: Backend) -> _Outcome:
    batch = 2 if settings.quick else _TOKENS // length
    rounds, per_pass = settings.rounds_or(_ROUNDS), shape.steps if settings.quick else _STEPS
    text = text_for(shape, settings, blocks=True, length=length, count=(1 + per_pass) * batch)
    source = _Blocks(mlm_recipe(shape, dropout=_DROPOUT, batch=batch, length=length), text)
    first, *steps = source.steps(1 + per_pass, seed=settings.seed)
    (first_padded, *padded) = [_unmasked(peers.padded(each)) for each in examples_of([first, *steps])]

    own, plain = (OwnStep(source.recipe, text, seed=settings.seed, autocast=torch.bfloat16) for _ in range(2))
    folder = settings.scratch / "model"
    own.save(folder)
    peer = TunedPeer(peers.load(folder, dropout=_DROPOUT), device, backend)
    shutil.rmtree(folder)
    for each in (own, plain):
        each.model.to(device)
    losses = _own_loss(own, first, device), peer.loss(first_padded)
    compiled = compile_model(own.model, first, torch.bfloat16, backend)
    sides = [
        Side(TUNED, _waited_for(device, lambda: peer.take(padded))),
        Side(OWN_PLAIN, _waited_for(device, lambda: plain.take(steps))),
        Side(OWN_BF16, _waited_for(device, lambda: own.take(steps))),
    ]
    peak = probe_matmul(device, 0.0 if settings.quick else 0.9, ("bf16",))["bf16"].flops
    return _Outcome(
        length=length,
        seconds=interleave(sides, rounds),
        # Every round computes on the same blocks, which `_unmasked` has seen to be full.
        tokens={side.name: [real_tokens(steps)] * rounds for side in sides},
        fill={TUNED: 1.0, OWN_PLAIN: filled(steps), OWN_BF16: filled(steps)},
        flops=[own.flops(steps)] * rounds,
        peak=peak,
        losses=losses,
        compiled=compiled,
    )


def _unmasked(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Leave the mask out of a batch in which nothing is padded: attention is then a faster kernel."""
    if not batch["attention_mask"].all():
        raise ValueError("blocks of unequal length cannot go without a mask")
    return {name: values for name, values in batch.items() if name != "attention_mask"}


def _waited_for(device: torch.device, work: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return run


def _own_loss(own: OwnStep, batch: StepBatch, device: torch.device) -> float:
    own.model.eval()
    total = 0.0
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
        for micro in batch.micro_batches:
            total += float(own.model.losses(micro.to(device))["mlm"].total)
    own.model.train()
    return total / batch.counts["mlm"]


def _check(outcome: _Outcome) -> Check:
    own, peer = outcome.losses
    apart = abs(own - peer) / abs(peer)
    return Check(
        f"blocks of {outcome.length}: loss", f"{own - peer:+.1e} of {peer:.4f}", f"{LOSS:.0e} of it", apart <= LOSS
    )


def _lines(shape: Shape, outcome: _Outcome) -> list[tuple[str, ...]]:
    lines, length = list[tuple[str, ...]](), str(outcome.length)
    for place, side in enumerate(outcome.seconds):
        is_own = side == OWN_BF16
        lines.append(
            (
                shape.told() if place == 0 else "",
                length if place == 0 else "",
                side,
                Spread.of(outcome.speed(side)).told(),
                f"{outcome.fill[side]:.2f}",
                f"{outcome.utilisation.median:.0%}" if is_own else "",
                "" if is_own else outcome.ratio(side).told(),
                "" if is_own else f"{outcome.ratio(side).median / outcome.utilisation.median:.1f}",
                goal("gpu", length, side),
                f"{outcome.losses[0] - outcome.losses[1]:+.1e}" if is_own else "",
            )
        )
    return lines
