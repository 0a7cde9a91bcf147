"""Tokenized text, its split into training and held-out documents, and the lengths of its sequences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from maskwright.core.randomness import keys
from maskwright.core.types import Documents, IntArray
from maskwright.data.shards.corpus import Corpus
from maskwright.pretext.formats.base import GatherTokens, sequence_lengths
from maskwright.pretext.replacement.base import VocabularyFacts
from maskwright.recipes.recipe import Recipe

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
    gather: GatherTokens
    vocabulary: VocabularyFacts
    span_facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    held_out: "Text | None" = None

    @classmethod
    def of(cls, corpus: Corpus, vocabulary: VocabularyFacts, weights: tuple[float, ...] | None = None) -> "Text":
        return cls(
            documents=corpus.documents,
            sources=corpus.document_sources,
            weights=weights,
            document_ends=corpus.document_ends,
            gather=corpus.gather,
            vocabulary=vocabulary,
            span_facts=corpus.span_facts,
        )

    @property
    def similar_words_fingerprint(self) -> str | None:
        """Identifies the table of similar words; None without one."""
        table = self.vocabulary.similar_words
        return None if table is None else table.fingerprint

    @property
    def vocab_size(self) -> int:
        return self.vocabulary.special_tokens.vocab_size


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
        return float(sequence_lengths(plan, separators).mean()) if len(plan) else float(length)

    return tuple(measured(phase.max_length) for phase in recipe.training.phases)
