"""Our side of a comparison: the step that `maskwright pretrain` takes, and its loss and gradients for checking."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.machine import own_machine
from maskwright.recipes.recipe import Recipe
from maskwright.training.batches import StepBatch
from maskwright.training.budget import Budget, Spent
from maskwright.training.checkpoint import save_models
from maskwright.training.device import computing_on
from maskwright.training.flops import step_flops
from maskwright.training.loop import Position, Schedule, StepReport, train
from maskwright.training.model import PretrainingModel, build_model
from maskwright.training.optimizer import Optimizer
from maskwright.training.step import Gradients, Update, take_step
from maskwright.training.workload import Text, Workload

LEARNING_RATE = 1e-4
CLIP = 1.0


class OwnStep:
    """A model in training, ready to take steps.

    Args:
        recipe: What is trained.
        text: Gives the special tokens.
        seed: Keys the weights.
        autocast: Compute type of matrix products; None for fp32.
    """

    def __init__(self, recipe: Recipe, text: Text, *, seed: int = 0, autocast: torch.dtype | None = None) -> None:
        self.recipe, self.text, self.autocast = recipe, text, autocast
        self.model: PretrainingModel = build_model(recipe, text.vocab_size)
        self.model.initialize(seed)
        self.model.train()
        self._optimizer = Optimizer(self.model.named_parameters(), recipe.training.optimizer)
        self._taken = 0

    def around(self) -> AbstractContextManager[Any]:
        """Return the context that a run computes in: its library for fp32 products."""
        return computing_on(own_machine())

    def step(self, batch: StepBatch, learning_rate: float = LEARNING_RATE) -> float:
        """Take one step and return its loss."""
        result = take_step(
            self.model,
            self._optimizer,
            batch,
            learning_rate=learning_rate,
            clip_norm=CLIP,
            step=self._taken,
            autocast=self.autocast,
        )
        self._taken += 1
        return result.loss

    def take(self, batches: Sequence[StepBatch]) -> None:
        """Take a step on each batch, a GPU's next one sent to it before this one's numbers are read, as in a run."""
        sent: Update | None = None
        for batch in batches:
            gradients = Gradients(self.model, self._optimizer, batch, step=self._taken, autocast=self.autocast)
            if sent is not None:
                sent.result()
            sent = gradients.update(learning_rate=LEARNING_RATE, clip_norm=CLIP)
            self._taken += 1
        if sent is not None:
            sent.result()

    def loop(self, workload: Workload, steps: int) -> list[StepReport]:
        """Take steps as a run takes them: texts in random order, masks drawn while the step before computes.

        Args:
            workload: Phases of training.
            steps: How many reports to return; one step more is taken, the first, which nobody prepared.
        """
        training = self.recipe.training
        reports = train(
            self.model,
            self._optimizer,
            workload.phases,
            Position(Spent(), 0, workload.phases[0].stream.start()),
            budget=Budget("steps", steps + 1),
            schedule=Schedule(
                shape=training.schedule,
                peak=LEARNING_RATE,
                warmup_share=0.1,
                batch_sequences=training.batch_sequences,
                clip_norm=CLIP,
            ),
            flops_of=lambda batch: self.flops([batch]),
            autocast=self.autocast,
        )
        return list(reports)[1:]

    def flops(self, batches: Sequence[StepBatch]) -> float:
        """Return the operations that the steps need: real tokens only, less what the last layer may leave out."""
        return sum(
            step_flops(self.recipe, self.text.vocab_size, batch)
            - sum(self.model.skipped_flops(micro) for micro in batch.micro_batches)
            for batch in batches
        )

    def save(self, folder: Path) -> None:
        """Write the model as transformers reads it, a generator in a folder beside it."""
        save_models(folder, self.recipe, self.model, self.text.vocabulary.special_tokens)

    def losses_and_gradients(self, batch: StepBatch) -> tuple[dict[str, float], dict[str, Tensor], list[Tensor]]:
        """Compute what a step computes before it updates, dropout off.

        Returns:
            The mean loss of each objective; all gradients by name; for each micro-batch what a generator drew.
        """
        self.model.eval()
        totals, drawn = dict.fromkeys(batch.counts, 0.0), list[Tensor]()
        with self.around():
            for micro in batch.micro_batches:
                with torch.autocast("cpu", self.autocast or torch.bfloat16, enabled=self.autocast is not None):
                    terms = self.model.losses(micro)
                weighted = [
                    each.weight * terms[each.kind].total / batch.counts[each.kind] for each in self.model.objectives
                ]
                torch.autograd.backward(torch.stack(weighted).sum())
                for kind, term in terms.items():
                    totals[kind] += float(term.total.detach())
                    if term.sampled is not None:
                        drawn.append(term.sampled)
        gradients = {
            name: parameter.grad
            for name, parameter in self.model.named_parameters(remove_duplicate=False)
            if parameter.grad is not None
        }
        self.model.zero_grad(set_to_none=True)
        self.model.train()
        return {kind: total / batch.counts[kind] for kind, total in totals.items()}, gradients, drawn
