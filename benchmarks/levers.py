"""What each lever gives: the whole step against the same step with one of them taken away, in turns.

Weights, texts and masks are the same on all sides; in the lever's place stands what would be written without it.
Dropout is on, so that its lever shows too.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.goals import OWN
from benchmarks.machine import own_machine
from benchmarks.own import OwnStep
from benchmarks.report import Report, Table
from benchmarks.settings import Settings
from benchmarks.shapes import BASE, TINY, Shape, chosen
from benchmarks.timing import Side, Spread, interleave, ratios, speeds
from benchmarks.workloads import Source, mlm_recipe, text_for
from maskwright.core.types import IntArray
from maskwright.kernels.attention_over_rows import laid_into_rows, taken_from_rows
from maskwright.kernels.attention_plan import AttentionPlan, Backend
from maskwright.kernels.cross_entropy import Scores
from maskwright.kernels.dropout import DropoutKey, dropout
from maskwright.training.batches import MicroBatch, StepBatch
from maskwright.training.device import MatmulLibrary, matmul_library, tokens_at_once
from maskwright.training.packing import Packing
from maskwright.training.workload import build_workload

_DROPOUT = 0.1
_SLOTS = (512, 1024, 2048, 4096, 8192)
_Change = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Lever:
    """Something that makes the step faster, and how to do without.

    Attributes:
        instead: What stands in its place, as the table calls it.
        around: Takes it away while a step computes.
        batches: Takes it away while batches are made.
        lay: Takes it away from a batch that is made.
        slots: Slots of a micro-batch; None for the usual number.
        autocast: Compute type of matrix products.
    """

    instead: str
    around: _Change = contextlib.nullcontext
    batches: _Change = contextlib.nullcontext
    lay: Callable[[StepBatch], StepBatch] | None = None
    slots: int | None = None
    autocast: torch.dtype | None = None


def levers() -> list[Lever]:
    """Return the levers of a training step, each taken away alone."""
    usual = own_machine()
    other: MatmulLibrary = "default" if usual.matmul == "onednn" else "onednn"
    return [
        Lever("rows filled up for all layers", lay=_with_filler),
        Lever("each text in a row of its own, filled up", batches=_one_a_row, lay=_with_filler),
        Lever("the whole last layer for all tokens", around=lambda: patch(f"{_TRAINING}.model.read_positions", _all)),
        Lever("all scores of the vocabulary at once", around=lambda: patch(f"{_MLM}.summed_cross_entropy", _whole)),
        Lever("attention by products over rows, its gradients by autograd", around=lambda: _attention(dropout)),
        Lever("PyTorch's dropout", around=_usual_dropout),
        Lever("attention by PyTorch's function", around=lambda: _backend("sdpa")),
        Lever(f"the other library of products ({_NAMES[other]})", around=lambda: matmul_library(other)),
        *(Lever(f"{slots:,} slots a pass", slots=slots) for slots in _SLOTS),
        Lever("bf16 products (rounded)", autocast=torch.bfloat16),
    ]


_TRAINING, _ENCODER = "maskwright.training", "maskwright.model"
_MLM = "maskwright.kernels.cross_entropy"
_NAMES = {"default": "PyTorch's own choice", "onednn": "oneDNN"}


def run(settings: Settings) -> Report:
    """Measure each lever on tiny and base models, documents of natural length, fp32, dropout 0.1."""
    rows, measurements = [], []
    for shape in chosen(settings, (TINY, BASE)):
        seconds, tokens = _hold(shape, settings)
        whole = speeds(seconds[OWN], tokens)
        for name, its in seconds.items():
            loss = ratios(whole, speeds(its, tokens))
            rows.append(
                (
                    shape.told() if name == OWN else "",
                    name if name == OWN else f"instead: {name}",
                    Spread.of(speeds(its, tokens)).told(),
                    "" if name == OWN else loss.told(),
                )
            )
            measurements.append({"model": shape.name, "side": name, "seconds": its, "tokens": tokens})
    columns = ("model", "step", "tokens/s", "the whole step is faster by")
    return Report(
        tables=(Table(title="", columns=columns, rows=tuple(rows), words=(0, 1)),),
        measurements=tuple(measurements),
        notes=(
            "Micro-batches usually have 4,096 slots, in encoders wider than 512 2,048; library of fp32 products: "
            f"{_NAMES[own_machine().matmul]}.",
            "A number below 1 says that the step is faster with what stands there instead.",
        ),
    )


def _hold(shape: Shape, settings: Settings) -> tuple[dict[str, list[float]], int]:
    """Return the seconds of each round by side, and the real tokens of a pass."""
    text = text_for(shape, settings)
    source = Source(mlm_recipe(shape, dropout=_DROPOUT, batch=shape.documents), text)
    own = OwnStep(source.recipe, text, seed=settings.seed)
    rounded = OwnStep(source.recipe, text, seed=settings.seed, autocast=torch.bfloat16)
    slots = tokens_at_once(own_machine(), source.recipe)
    usual = _steps(source, shape, settings, slots)
    sides = [Side(OWN, lambda: own.take(usual), own.around)]
    for lever in levers():
        if lever.slots == slots:
            continue
        steps = lever_steps(lever, source, shape, settings, slots)
        sides.append(_side(lever, own if lever.autocast is None else rounded, steps))
    return interleave(sides, settings.rounds_or(shape.rounds)), sum(step.num_tokens for step in usual)


def _side(lever: Lever, own: OwnStep, steps: list[StepBatch]) -> Side:
    @contextlib.contextmanager
    def around() -> Iterator[None]:
        with own.around(), lever.around():
            yield

    return Side(lever.instead, lambda: own.take(steps), around)


def _steps(source: Source, shape: Shape, settings: Settings, slots: int) -> list[StepBatch]:
    """Make steps of the same texts and masks, however they are laid out: four times the usual, to fill large passes."""
    phase = build_workload(
        source.recipe, source.text, seed=settings.seed, held_out_tokens=0, tokens_per_microbatch=slots
    ).phases[0]
    rows, _ = phase.stream.read(phase.stream.start(), 4 * shape.documents)
    return [phase.collator.collate(rows, 0)]


def lever_steps(lever: Lever, source: Source, shape: Shape, settings: Settings, slots: int) -> list[StepBatch]:
    """Make the steps that stand against a lever.

    Args:
        lever: What is taken away.
        source: Recipe and text.
        shape: Its number of texts is used.
        settings: Its seed is used.
        slots: Slots of a micro-batch, where the lever does not say.
    """
    with lever.batches():
        steps = _steps(source, shape, settings, lever.slots or slots)
    return steps if lever.lay is None else [lever.lay(step) for step in steps]


def _one_a_row() -> AbstractContextManager[Any]:
    def pack(lengths: IntArray, row_length: int) -> Packing:
        numbers = np.arange(len(lengths))
        return Packing(numbers, numbers, np.zeros_like(numbers), len(lengths))

    return patch(f"{_TRAINING}.batches.pack", pack)


def _with_filler(step: StepBatch) -> StepBatch:
    """Let every layer compute on the filler of rows too. Targets are tokens, as those of masked words are."""
    micro_batches = tuple(_as_rows(micro) for micro in step.micro_batches)
    return replace(step, micro_batches=micro_batches, num_slots=sum(len(each.batch.ids) for each in micro_batches))


def _as_rows(micro: MicroBatch) -> MicroBatch:
    batch, slots = micro.batch, micro.batch.row_slots
    assert slots is not None
    assert batch.row_length is not None
    assert batch.num_rows is not None
    size = batch.num_rows * batch.row_length

    def laid(values: Tensor, filler: int) -> Tensor:
        return values.new_full((size,), filler).index_copy_(0, slots, values[: len(slots)])

    rows = replace(
        batch,
        ids=laid(batch.ids, 0),
        position_ids=laid(batch.position_ids, 0),
        segment_ids=laid(batch.segment_ids, 0),
        sequence_ids=laid(batch.sequence_ids, -1),
        first_tokens=slots[batch.first_tokens],
        row_slots=None,
        num_rows=None,
    )
    assert not any(each.anchors for each in micro.targets.values())
    return MicroBatch(
        rows, {kind: replace(each, positions=slots[each.positions]) for kind, each in micro.targets.items()}
    )


def _all(*_: object, **__: object) -> None:
    return None


def _backend(name: Backend) -> AbstractContextManager[Any]:
    def choose(*_: object, **__: object) -> Backend:
        return name

    return patch(f"{_ENCODER}.encoder.choose_backend", choose)


def _whole(features: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, **_: object) -> Scores:
    logits = F.linear(features[: len(labels)], weight, bias)
    total = F.cross_entropy(logits, labels, reduction="sum")
    return Scores(total, (logits.argmax(1) == labels).sum(), None)


@contextlib.contextmanager
def _attention(drop: Callable[[Tensor, float, DropoutKey | None, int], Tensor]) -> Iterator[None]:
    def rows(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: Any) -> Tensor:
        size = queries.shape[1] // heads.number
        q, k, v = (
            laid_into_rows(each, plan).view(-1, plan.row_length, heads.number, size).transpose(1, 2)
            for each in (queries, keys, values)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(size)
        if plan.mask is not None:
            scores = scores + plan.mask
        mixed = drop(scores.softmax(-1), heads.rate, heads.key, heads.call) @ v
        return taken_from_rows(mixed.transpose(1, 2).reshape(-1, queries.shape[1]), plan, len(queries))

    with _backend("rows"), patch.dict("maskwright.kernels.attention._BACKENDS", {"rows": rows}):
        yield


@contextlib.contextmanager
def _usual_dropout() -> Iterator[None]:
    def drop(values: Tensor, rate: float, key: DropoutKey | None, call: int) -> Tensor:
        return values if key is None else F.dropout(values, rate)

    def drop_and_add(values: Tensor, residual: Tensor, rate: float, key: DropoutKey | None, call: int) -> Tensor:
        return residual + drop(values, rate, key, call)

    with (
        _attention(drop),
        patch(f"{_ENCODER}.encoder.dropout", drop),
        patch(f"{_ENCODER}.layer.dropout_add", drop_and_add),
    ):
        yield
