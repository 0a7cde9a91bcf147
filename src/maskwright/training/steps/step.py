"""One optimizer step: losses are summed over micro-batches and divided once, by the counts of the whole step.

A step has three parts: gradients, the update, and its numbers for the host. On a GPU all three are asynchronous; the
GPU is never idle if the next step's gradients are launched before the numbers are awaited.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from maskwright.core.errors import DivergenceError, TrainingError
from maskwright.core.tensors import LossTerm
from maskwright.training.ranks.distributed import RankSum
from maskwright.training.ranks.gradients import GradientReducer
from maskwright.training.steps.batches import StepBatch
from maskwright.training.steps.optimizer import Clipping, Optimizer, clipping_scale, total_norm


class WeightedLoss(Protocol):
    """A loss of a model, by the name that its counts and terms have; `Objective` is one."""

    @property
    def kind(self) -> str: ...

    @property
    def weight(self) -> float: ...

    def details(self, tallies: Mapping[str, float], count: int) -> dict[str, float]: ...


class TrainedModel(Protocol):
    """The interface of a model that a step trains: a pretraining model, or an encoder with a task head."""

    @property
    def objectives(self) -> Sequence[WeightedLoss]: ...

    @property
    def uses_graphs(self) -> bool:
        """Whether CUDA graphs may compute gradients, not autograd."""

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def losses(self, micro_batch: Any) -> Mapping[str, LossTerm]:
        """Return the summed loss of each objective, by kind."""


@dataclass(frozen=True, slots=True)
class ObjectiveResult:
    """The numbers of one objective: mean loss in nats over `count` predictions, and share of correct ones.

    The accuracy is None if predictions are neither right nor wrong; details are further shares (`Objective.details`).
    """

    loss: float
    accuracy: float | None
    count: int
    details: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The numbers of one step: the weighted total loss in nats, and those of each objective that predicts something."""

    loss: float
    gradient_norm: float
    objectives: dict[str, ObjectiveResult]


class Step:
    """A step whose gradients are in the parameters' `grad`; on a GPU they are perhaps still being computed.

    Raises TrainingError if nothing is predicted.

    Args:
        model: In training mode.
        optimizer: Over the model's parameters, gradients empty.
        autocast: Matmul type (bfloat16); None is fp32.
        reducer: Shared by all steps of a run; None creates one for this step.
    """

    def __init__(
        self,
        model: TrainedModel,
        optimizer: Optimizer,
        batch: StepBatch,
        step: int,
        autocast: torch.dtype | None = None,
        reducer: GradientReducer | None = None,
    ) -> None:
        if not any(batch.counts.values()):
            raise TrainingError(
                f"step {step + 1:,} ({batch.key}) has no prediction",
                hint="Raise masking.rate or training.batch_sequences; in fine-tuning, give labeled examples.",
            )
        self.batch, self._model, self._optimizer, self._step = batch, model, optimizer, step
        self._device = next(model.parameters()).device
        self._reducer = reducer or GradientReducer(optimizer.names)
        self._begun = _point_in_time(self._device)
        # Sums stay on the device: reading each number would wait for the GPU.
        self._sums = Sums()
        for micro in batch.micro_batches:
            with torch.autocast(self._device.type, autocast or torch.bfloat16, enabled=autocast is not None):
                terms = model.losses(micro)
            loss = weighted_loss(model.objectives, terms, batch.counts)
            is_last = micro is batch.micro_batches[-1]
            with self._reducer.last_backward(overlaps=not model.uses_graphs) if is_last else nullcontext():
                torch.autograd.backward(loss)
            for kind, term in terms.items():
                self._sums.add_term(kind, term)
        self._ended = _point_in_time(self._device)

    def drop(self) -> None:
        """Delete the gradients."""
        self._reducer.wait()
        for parameter in self._optimizer.names:
            parameter.grad = None

    def update(self, learning_rate: float, clip_norm: float) -> None:
        """Clip to a global norm (0 is off) and update; gradients are then dropped.

        Raises DivergenceError if the loss or the gradient is not finite and the host checks it (`skips_on_device`);
        weights are untouched.
        """
        self._reducer.wait()
        gradients = [parameter.grad for parameter in self._optimizer.names if parameter.grad is not None]
        self._sums.all_reduce_sum()
        norm = total_norm(gradients)
        self._sums.add("", "norm", norm)
        if skips_on_device(self._device):
            total = torch.stack([self._sums.total(each.kind, "loss") for each in self._model.objectives]).sum()
            self._optimizer.step(learning_rate, clipping=Clipping.of(norm, total, clip_norm))
            self._sums.to_host()
        else:
            self._sums.to_host()
            scale = clipping_scale(self.result().gradient_norm, clip_norm)
            self._optimizer.step(learning_rate, gradient_scale=scale)

    @property
    def is_done(self) -> bool:
        """Whether the device has finished the update."""
        return self._sums.is_done

    @property
    def gradient_seconds(self) -> float:
        """Seconds in which the device computed the gradients, before it waited for other ranks; after `result`."""
        if isinstance(self._begun, float):
            return float(self._ended - self._begun)
        return float(self._begun.elapsed_time(self._ended)) / 1000

    def result(self) -> StepResult:
        """Wait for the step's numbers and return them.

        Raises DivergenceError if the loss or the gradient is not finite; weights are untouched.
        """
        sums, objectives = self._sums.read(), self._model.objectives
        results, gradient_norm = results_of(objectives, self.batch.counts, sums), sums[""]["norm"]
        loss = total_loss(objectives, results)
        if not math.isfinite(loss) or not math.isfinite(gradient_norm):
            raise DivergenceError(
                f"step {self._step + 1:,} ({self.batch.key}): the loss is {loss:g} and the gradient norm "
                f"{gradient_norm:g}; the run stops before the update",
                hint="Lower the learning rate (`--set training.learning_rate=...`, in fine-tuning `--set "
                "learning_rate=...`) and use a new --out folder.",
            )
        return StepResult(loss, gradient_norm, results)


def _point_in_time(device: torch.device) -> Any:
    """Return the time, in seconds; on a GPU an event, which happens when the work launched so far is done."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def weighted_loss(
    objectives: Iterable[WeightedLoss], terms: Mapping[str, LossTerm], counts: Mapping[str, int]
) -> Tensor:
    """Return a micro-batch's share of the total loss."""
    weighted = [each.weight / max(1, counts[each.kind]) * terms[each.kind].total for each in objectives]
    return torch.stack(weighted).sum()


def skips_on_device(device: torch.device) -> bool:
    """Return whether optimizers clip and skip non-finite updates themselves; only LAMB waits for the device."""
    return device.type == "cuda"


class Sums:
    """Sums of scalar tensors, in fp64, by objective and name: adding does not wait for a GPU, only `read` does."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], Tensor] = {}
        self._copied: torch.cuda.Event | None = None

    def add(self, kind: str, name: str, value: Tensor) -> None:
        """Add a scalar tensor of any type, without its gradient."""
        exact, key = value.detach().double(), (kind, name)
        self._sums[key] = self._sums[key] + exact if key in self._sums else exact

    def add_term(self, kind: str, term: LossTerm) -> None:
        """Add an objective's "loss", number of "correct" predictions and tallies on one micro-batch."""
        self.add(kind, "loss", term.total)
        if term.correct is not None:
            self.add(kind, "correct", term.correct)
        for name, value in term.tallies.items():
            self.add(kind, name, value)

    def total(self, kind: str, name: str) -> Tensor:
        """Return one sum on its device, an fp64 scalar."""
        return self._sums[kind, name]

    def all_reduce_sum(self) -> None:
        """Add the sums of all ranks, which have the same names, in any order."""
        names = sorted(self._sums)
        summed = RankSum(torch.stack([self._sums[name] for name in names])).wait()
        self._sums = dict(zip(names, summed.unbind(), strict=True))

    def to_host(self) -> "Sums":
        """Start copying all sums to the host."""
        self._values = torch.stack(list(self._sums.values())) if self._sums else torch.empty(0, dtype=torch.float64)
        if self._values.is_cuda:
            pinned = torch.empty(self._values.shape, dtype=self._values.dtype, pin_memory=True)
            self._values = pinned.copy_(self._values, non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()
        return self

    @property
    def is_done(self) -> bool:
        """Whether `read` waits for nothing."""
        return self._copied is None or bool(self._copied.query())  # type: ignore[no-untyped-call]

    def read(self) -> dict[str, dict[str, float]]:
        """Wait for the sums that were copied and return them."""
        if self._copied is not None:
            self._copied.synchronize()
        numbers: dict[str, dict[str, float]] = {}
        for (kind, name), value in zip(self._sums, self._values.tolist(), strict=True):
            numbers.setdefault(kind, {})[name] = value
        return numbers


def results_of(
    objectives: Iterable[WeightedLoss], counts: Mapping[str, int], sums: Mapping[str, Mapping[str, float]]
) -> dict[str, ObjectiveResult]:
    """Return the result of each objective that has predictions, from what `Sums.read` returns."""
    results = {}
    for objective in objectives:
        if count := counts.get(objective.kind, 0):
            numbers = sums[objective.kind]
            accuracy = numbers["correct"] / count if "correct" in numbers else None
            details = objective.details(numbers, count)
            results[objective.kind] = ObjectiveResult(numbers["loss"] / count, accuracy, count, details)
    return results


def total_loss(objectives: Iterable[WeightedLoss], results: Mapping[str, ObjectiveResult]) -> float:
    """Return the weighted sum of the mean losses."""
    return float(sum(each.weight * results[each.kind].loss for each in objectives if each.kind in results))
