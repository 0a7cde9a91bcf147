"""The phases of the loop and the held-out batches, built from prepared text and a recipe; the FLOPs of a step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from maskwright.core.types import Documents
from maskwright.model.config import EncoderConfig
from maskwright.model.sizes import skipped_flops_per_token
from maskwright.recipes.recipe import Recipe
from maskwright.recipes.sizing import training_flops_per_token
from maskwright.training.steps.batches import Collator, StepBatch
from maskwright.training.steps.loop import Phase
from maskwright.training.steps.sampler import InstanceSampler, Rows
from maskwright.training.steps.text import Split, Text, split, split_text

_HELD_OUT_SEED, _HELD_OUT_SEQUENCES = 0, 256


@dataclass(frozen=True, slots=True)
class Workload:
    """The phases of a run, the training documents of each source, and fixed batches of the held-out text.

    Held-out batches have no dropout, and there are none if the text is too short.
    """

    phases: tuple[Phase, ...]
    sources: tuple[Documents, ...]
    held_out: list[StepBatch]
    held_out_documents: Documents

    def held_out_sample(self) -> list[StepBatch]:
        """Return the first micro-batch of the held-out text, if there is any."""
        for batch in self.held_out[:1]:
            micro = batch.micro_batches[0]
            counts = {kind: len(targets.labels) for kind, targets in micro.targets.items()}
            return [replace(batch, micro_batches=(micro,), counts=counts)]
        return []


def build_workload(
    recipe: Recipe,
    text: Text,
    *,
    seed: int,
    held_out_tokens: int,
    tokens_per_microbatch: int,
    ranks: int = 1,
    device: torch.device = torch.device("cpu"),
) -> Workload:
    """Split off at most `held_out_tokens` of held-out text and build every phase, with micro-batches for `ranks`.

    Of text that comes with held-out text (`Text.held_out`) all is trained on, and so many of those tokens are measured.
    """
    held_out = text if text.held_out is None else text.held_out
    if held_out is text:
        parts = split_text(text, seed, held_out_tokens)
    else:
        measured_part = split(held_out.documents, _HELD_OUT_SEED, share=1.0, max_tokens=held_out_tokens).held_out
        parts = Split(text.documents, measured_part)
    collator = Collator(
        masking=recipe.masking,
        replacement=recipe.replacement,
        objectives=recipe.objectives,
        vocabulary=text.vocabulary,
        gather=text.gather,
        separator_points=recipe.format.separator_points(text.documents),
        seed=seed,
        max_length=recipe.training.phases[0].max_length,
        tokens_per_microbatch=tokens_per_microbatch,
        encoders=recipe.encoders,
        device=device,
        dropout=bool(recipe.encoder.hidden_dropout or recipe.encoder.attention_dropout),
        ranks=ranks,
    )
    samplers = {
        length: _sampler(recipe, parts.train, text, length, seed)
        for length in {phase.max_length for phase in recipe.training.phases}
    }
    lengths = _ends([(phase.share, phase.max_length) for phase in recipe.training.phases])
    stages = _ends(list(recipe.masking.stages))
    phases = []
    for cut in sorted({end for end, _ in (*lengths, *stages)}):  # Where the length or the masking changes.
        length = next(length for end, length in lengths if cut <= end)
        masking = next(masking for end, masking in stages if cut <= end)
        changed = replace(collator, masking=masking, max_length=length)
        phases.append(Phase(cut, samplers[length], changed, recipe.training.batch_sequences))
    measured = replace(
        collator,
        gather=held_out.gather,
        separator_points=recipe.format.separator_points(held_out.documents),
        replacement=recipe.replacement.without_kept,
        seed=_HELD_OUT_SEED,
        dropout=False,
        ranks=1,
        device=torch.device("cpu"),  # `measure` moves a micro-batch when it is its turn; baselines count on the CPU.
    )
    sources = samplers[recipe.training.phases[0].max_length].sources
    return Workload(tuple(phases), sources, _held_out_batches(recipe, measured, parts.held_out), parts.held_out)


def _ends(stretches: Sequence[tuple[float, Any]]) -> list[tuple[float, Any]]:
    """Turn shares into ends; the last is exactly 1."""
    ends = [round(sum(share for share, _ in stretches[: number + 1]), 9) for number in range(len(stretches))]
    return [(end, each) for end, (_, each) in zip([*ends[:-1], 1.0], stretches, strict=True)]


def _sampler(recipe: Recipe, documents: Documents, text: Text, max_length: int, seed: int) -> InstanceSampler:
    plan = partial(recipe.format.plan, max_length=max_length, seed=seed)
    if text.weights is None:
        return InstanceSampler([documents], None, plan, recipe.masks.copies, seed)
    # A document's source is found by its end: the held-out split may have taken its beginning.
    source_of = text.sources[np.searchsorted(text.document_ends, documents.bounds(documents.last))]
    sources = [documents.pick(source_of == number) for number in range(len(text.weights))]
    return InstanceSampler(sources, text.weights, plan, recipe.masks.copies, seed)


def _held_out_batches(recipe: Recipe, collator: Collator, documents: Documents) -> list[StepBatch]:
    if not len(documents) or not len(plan := recipe.format.plan(documents, collator.max_length, _HELD_OUT_SEED, 0)):
        return []
    index = np.arange(len(plan))
    return [
        collator.collate(Rows(plan.rows(part), np.zeros(len(part), dtype=np.int64), part, 0.0), step=0)
        for part in np.array_split(index, -(-len(index) // _HELD_OUT_SEQUENCES))
    ]


def step_flops(recipe: Recipe, vocab_size: int, batch: StepBatch, teacher: EncoderConfig | None = None) -> float:
    """Return the training FLOPs of a step: real tokens, real lengths, real targets; padding is not counted."""
    return batch.num_tokens * training_flops_per_token(
        recipe,
        vocab_size,
        length=batch.squared_lengths / batch.num_tokens,
        predictions_per_token={kind: count / batch.num_tokens for kind, count in batch.counts.items()},
        sequences_per_token=batch.num_sequences / batch.num_tokens,
        teacher=teacher,
    )


def skipped_flops(recipe: Recipe, batch: StepBatch) -> float:
    """Return the training FLOPs of a step that `step_flops` counts and the last layers skip."""
    return sum(
        batch.skipped_tokens[name] * skipped_flops_per_token(config) for name, (config, _) in recipe.encoders.items()
    )
