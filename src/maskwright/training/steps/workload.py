"""The phases of the loop and the held-out batches, built from prepared text and a recipe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from maskwright.core.randomness import keys
from maskwright.core.types import Documents, IntArray, Plan
from maskwright.pretext.formats.base import TakeTokens
from maskwright.pretext.replacement.base import VocabularyFacts
from maskwright.recipes.recipe import Recipe
from maskwright.training.steps.batches import Collator, StepBatch
from maskwright.training.steps.loop import Phase
from maskwright.training.steps.sampler import InstanceSampler, Rows

_HELD_OUT_SEED, _HELD_OUT_SEQUENCES = 0, 256
_MIN_DOCUMENTS = 16
_DOCUMENTS_MEASURED = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Tokenized text.

    Attributes:
        sources: Shape (D,), the source of each document.
        weights: Share of each source; None for natural shares.
        document_ends: Ascending token offsets at which documents end.
        span_facts: Counts of phrase and entity spans (`data.words.span_facts`).
        held_out: Text that is held out instead of a share of these documents, with the same vocabulary.
    """

    documents: Documents
    sources: IntArray
    weights: tuple[float, ...] | None
    document_ends: IntArray
    take: TakeTokens
    vocabulary: VocabularyFacts
    span_facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    held_out: "Text | None" = None

    @property
    def similar_words_fingerprint(self) -> str | None:
        """Identifies the table of similar words; None without one."""
        table = self.vocabulary.similar_words
        return None if table is None else table.fingerprint

    @property
    def vocab_size(self) -> int:
        """Entries of the vocabulary."""
        return self.vocabulary.special_tokens.vocab_size


@dataclass(frozen=True, slots=True)
class Workload:
    """The phases of a run, and fixed batches of the held-out text without dropout (none if the text is too short)."""

    phases: tuple[Phase, ...]
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
        format=recipe.format,
        masking=recipe.masking,
        replacement=recipe.replacement,
        objectives=recipe.objectives,
        vocabulary=text.vocabulary,
        take=text.take,
        separator_points=recipe.format.separator_points(text.documents),
        seed=seed,
        max_length=recipe.training.phases[0].max_length,
        tokens_per_microbatch=tokens_per_microbatch,
        encoders=recipe.encoders,
        device=device,
        dropout=bool(recipe.encoder.hidden_dropout or recipe.encoder.attention_dropout),
        samples=recipe.generator is not None,
        ranks=ranks,
    )
    samplers = {
        length: _sampler(recipe, parts.train, text, length, seed)
        for length in {phase.max_length for phase in recipe.training.phases}
    }
    lengths = _ends([(phase.share, phase.max_length) for phase in recipe.training.phases])
    stages = _ends(list(recipe.masking.stages))
    batches = _ends(list(recipe.training.batches))
    phases = []
    # Where the length, the masking or the batch size changes.
    for cut in sorted({end for end, _ in (*lengths, *stages, *batches)}):
        length = next(length for end, length in lengths if cut <= end)
        masking = next(masking for end, masking in stages if cut <= end)
        batch = next(sequences for end, sequences in batches if cut <= end)
        phases.append(Phase(cut, samplers[length], replace(collator, masking=masking, max_length=length), batch))
    measured = replace(
        collator,
        take=held_out.take,
        separator_points=recipe.format.separator_points(held_out.documents),
        replacement=recipe.replacement.hiding_all,
        seed=_HELD_OUT_SEED,
        dropout=False,
        ranks=1,
        device=torch.device("cpu"),  # `measure` moves a micro-batch when it is its turn; baselines count on the CPU.
    )
    return Workload(tuple(phases), _held_out_batches(measured, parts.held_out), parts.held_out)


def _ends(stretches: Sequence[tuple[float, Any]]) -> list[tuple[float, Any]]:
    """Turn shares into ends; the last is exactly 1."""
    ends = [round(sum(share for share, _ in stretches[: number + 1]), 9) for number in range(len(stretches))]
    return [(end, each) for end, (_, each) in zip([*ends[:-1], 1.0], stretches, strict=True)]


class Split(NamedTuple):
    """Training and held-out documents."""

    train: Documents
    held_out: Documents


def split(documents: Documents, seed: int, share: float = 0.05, max_tokens: int = 60_000) -> Split:
    """Split all sentences into training and held-out text: whole sentences from documents in random order.

    At most a sixteenth of the held-out text comes from one document, so that long documents (books) give their
    beginnings; the rest of a document is a document of the training text. Nothing is held out if a sixteenth is less
    than any first sentence.
    """
    limit = int(min(share * documents.num_tokens, max_tokens))
    from_one = max(limit // _MIN_DOCUMENTS, 1)
    cut = documents.first.astype(np.int64, copy=True)  # Where each document's training part begins.
    left = limit
    for document in np.argsort(keys(seed, "held-out", 0, np.arange(len(documents))), kind="stable").tolist():
        if left <= 0:
            break
        first, last = int(documents.first[document]), int(documents.last[document])
        ends = documents.sentence_ends[first:last] - int(documents.bounds(np.array(first)))
        taken = int(np.searchsorted(ends, min(from_one, left), side="right"))
        if taken:
            cut[document] = first + taken
            left -= int(ends[taken - 1])
    aside, rest = cut > documents.first, cut < documents.last
    return Split(
        train=Documents(documents.sentence_ends, cut[rest], documents.last[rest]),
        held_out=Documents(documents.sentence_ends, documents.first[aside], cut[aside]),
    )


def split_text(text: Text, seed: int, held_out_tokens: int) -> Split:
    """Split off held-out text from each source by its weight."""
    if text.weights is None:
        return split(text.documents, seed, max_tokens=held_out_tokens)
    scale = held_out_tokens / sum(text.weights)
    parts = [
        split(text.documents.pick(text.sources == number), seed, max_tokens=int(scale * weight))
        for number, weight in enumerate(text.weights)
    ]
    return Split(*map(_joined, zip(*parts, strict=True)))


def _joined(parts: Sequence[Documents]) -> Documents:
    firsts, lasts = (np.concatenate([getattr(part, name) for part in parts]) for name in ("first", "last"))
    return Documents(parts[0].sentence_ends, firsts, lasts)


def mean_lengths(recipe: Recipe, text: Text, seed: int) -> tuple[float, ...]:
    """Return the mean tokens of a sequence in each length phase, measured on a sample of the documents."""
    some = np.linspace(0, len(text.documents) - 1, min(len(text.documents), _DOCUMENTS_MEASURED))
    documents = text.documents.pick(some.astype(np.int64))
    separators = recipe.format.separator_points(text.documents)

    def measured(length: int) -> float:
        plan = recipe.format.plan(documents, length, seed, 0)
        return float(recipe.format.lengths(plan, separators).mean()) if len(plan) else float(length)

    return tuple(measured(phase.max_length) for phase in recipe.training.phases)


def _sampler(recipe: Recipe, documents: Documents, text: Text, max_length: int, seed: int) -> InstanceSampler:
    def plan(some: Documents, mask_sample: int) -> Plan:
        return recipe.format.plan(some, max_length, seed, mask_sample)

    if text.weights is None:
        return InstanceSampler([documents], None, plan, recipe.masks.mask_sample, seed)
    # A document's source is found by its end: the held-out split may have taken its beginning.
    source_of = text.sources[np.searchsorted(text.document_ends, documents.bounds(documents.last))]
    sources = [documents.pick(source_of == number) for number in range(len(text.weights))]
    return InstanceSampler(sources, text.weights, plan, recipe.masks.mask_sample, seed)


def _held_out_batches(collator: Collator, documents: Documents) -> list[StepBatch]:
    if not len(documents) or not len(plan := collator.format.plan(documents, collator.max_length, _HELD_OUT_SEED, 0)):
        return []
    index = np.arange(len(plan))
    return [
        collator.collate(Rows(plan.rows(part), np.zeros(len(part), dtype=np.int64), part, 0.0), step=0)
        for part in np.array_split(index, -(-len(index) // _HELD_OUT_SEQUENCES))
    ]
