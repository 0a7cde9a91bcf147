"""A tag for each word of a sentence, or for each character: entities, parts of speech.

The tag is predicted at each word's first piece (Devlin et al. 2019, 5.3). Words that give no piece at all (control
characters, emoji that a vocabulary's cleaning drops) are given the tag outside of all entities, unseen.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.errors import DataError, unknown_name
from maskwright.core.types import HeadKind, IntArray
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.words.scripts import HAN_CLASS
from maskwright.finetuning.examples import TaggedExample
from maskwright.finetuning.features import FeatureBatch, Features
from maskwright.finetuning.layout import lay_out, room
from maskwright.finetuning.metrics.classification import accuracy
from maskwright.finetuning.metrics.entities import (
    TagScheme,
    entities_of,
    entity_scores,
    mark_entities,
    scheme_of,
    type_of,
)
from maskwright.finetuning.tasks.base import Prediction, Scores, Task
from maskwright.finetuning.tasks.parts import (
    as_json,
    check_labels,
    check_metrics,
    learnable,
    number_of,
    require_labels,
    rows,
    softmax,
    unknown_label,
)
from maskwright.finetuning.tasks.words import Joined, shortened, to_pieces, to_windows

OUTSIDE = "O"
ENTITY_METRICS = ("f1", "precision", "recall", "accuracy")
TAG_METRICS = ("accuracy",)

# Scripts that write no spaces between words: Han, kana, Thai, Lao, Burmese, Khmer.
_NO_SPACES = re.compile(f"[{HAN_CLASS}\u3041-\u30fa\u0e01-\u0e5b\u0e81-\u0eff\u1000-\u109f\u1780-\u17ff]")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Tagging(Task[TaggedExample]):
    """A tag for each word.

    Attributes:
        labels: The tags as the file writes them.
        scheme: How tags mark entities: "IO" (also for the older IOB1), "BIO", "IOBES", "BILOU", "BMES"; None for tags
            that mark none (parts of speech).
        metrics: What is reported, the main one first: "f1", "precision", "recall" of entities, both ends and the type
            right (`metrics.entity_scores`), of one type too ("f1_PER"), and "accuracy", the share of words with the
            right tag.
        joined: What stands between words in running text: a "space", or "nothing" for Chinese characters.
        outside: The tag of words that the tokenizer drops: "O", or else the most frequent one of the training file.
    """

    kind: ClassVar[str] = "tagging"
    head: ClassVar[HeadKind] = "token"
    labels: tuple[str, ...]
    scheme: TagScheme | None = None
    metrics: tuple[str, ...] = ("accuracy",)
    joined: Joined = "space"
    outside: str = OUTSIDE

    def __post_init__(self) -> None:
        check_labels(self.labels, "tag")
        for name, value, known in (("scheme", self.scheme, TagScheme), ("joined", self.joined, Joined)):
            if value is not None and value not in get_args(known):
                problem, allowed, todo = unknown_name(f"{name} of the task 'tagging'", str(value), get_args(known))
                raise DataError(problem, allowed=allowed, todo=todo)
        check_metrics(self.metrics, TAG_METRICS if self.scheme is None else self._entity_metrics(), self.kind)
        if self.outside not in self.labels:
            raise unknown_label("the task's tag outside of entities", self.outside, self.labels, "tag")

    @classmethod
    def for_examples(cls, examples: Sequence[TaggedExample], **fields: Any) -> Self:
        """Make a task whose tags, scheme and manner of joining words are those of some examples (training ones).

        Raises:
            DataError: If they have fewer than two tags, or tags of entities in no known scheme.
        """
        tagged = [example.tags for example in examples if example.tags is not None]
        counts = Counter(itertools.chain.from_iterable(tagged))
        scheme = scheme_of(tagged) if mark_entities(counts) else None
        found: dict[str, Any] = {
            "labels": _sorted_tags(counts),
            "scheme": scheme,
            "metrics": TAG_METRICS if scheme is None else ENTITY_METRICS,
            "joined": how_joined(examples),
        }
        if OUTSIDE not in counts and counts:
            found["outside"] = counts.most_common(1)[0][0]
        return cls(**{**found, **fields})

    @property
    def num_outputs(self) -> int:
        """Width of the head's last layer."""
        return len(self.labels)

    def features(
        self,
        examples: Sequence[TaggedExample],
        tokenizer: Tokenizer,
        *,
        max_length: int,
        segments: bool,
        training: bool,
    ) -> Features:
        """Turn sentences into sequences; a sentence that is too long into several (see `words`).

        Sentences of which no word gives a piece have no unit. `num_cut` counts sentences with a word so long that its
        end was cut off.
        """
        chosen = np.arange(len(examples), dtype=np.int64)
        if training:
            chosen = learnable(examples)
        kept = [examples[number] for number in chosen.tolist()]
        available = room(tokenizer, max_length, pair=False)
        whole = to_pieces([example.words for example in kept], tokenizer, self.joined)
        pieces = shortened(whole, available)
        windows = to_windows(pieces, available)
        pairs = np.zeros(len(windows.sentences), dtype=bool)
        laid = lay_out(pieces.ids, windows.tokens, None, tokenizer, segments=segments, pairs=pairs)
        words = windows.words.tokens
        seen = pieces.words.lengths[words] > 0
        moved = np.repeat(laid.first_starts - windows.tokens.starts, windows.words.lengths)
        long_words = np.concatenate([[0], np.cumsum(whole.words.lengths > available)])
        is_cut = long_words[pieces.sentences.ends] > long_words[pieces.sentences.starts]
        return Features(
            ids=laid.ids,
            segment_ids=laid.segment_ids,
            cu_seqlens=laid.cu_seqlens,
            units=np.arange(len(pairs), dtype=np.int64),
            examples=chosen[windows.sentences],
            positions=(pieces.words.starts[words] + moved)[seen],
            labels=self._targets(kept)[words][seen] if training else None,
            num_cut=int(np.count_nonzero(is_cut)),
        )

    def _targets(self, examples: Sequence[TaggedExample]) -> IntArray:
        numbers = number_of(self.labels)
        targets = []
        for example in examples:
            assert example.tags is not None
            for tag in example.tags:
                if tag not in numbers:
                    raise unknown_label(f"example {example.key}", tag, self.labels, "tag")
                targets.append(numbers[tag])
        return np.array(targets, dtype=np.int64)

    def loss(self, scores: Tensor, batch: FeatureBatch) -> tuple[Tensor, int]:
        """Return the summed cross entropy and the number of words predicted (see `Task.loss`)."""
        assert batch.labels is not None
        learnt = int(torch.count_nonzero(batch.labels >= 0))
        return F.cross_entropy(scores, batch.labels, reduction="sum", ignore_index=-1), learnt

    def by_unit(self, scores: Tensor, batch: FeatureBatch) -> list[Scores]:
        """Cut scores into one array (tags, C) a unit."""
        assert batch.positions is not None
        of_word = batch.units[batch.batch.sequence_ids[batch.positions]]
        return rows(scores, torch.bincount(of_word, minlength=len(batch.unit_numbers)).tolist())

    def predictions(
        self,
        scores: Sequence[Scores],
        features: Features,
        examples: Sequence[TaggedExample],
        tokenizer: Tokenizer,
    ) -> list[Prediction]:
        """List each sentence's tags, one a word; the score is the probability of just these tags.

        Details hold the "probabilities" of the words' tags (None for words that the tokenizer drops, "unseen" says how
        many), and the "entities" with the words [first_word, end_word), the characters [start, end) of the words joined
        as in running text, and the mean probability of their words as "score".
        """
        pieces = to_pieces([example.words for example in examples], tokenizer, self.joined)
        seen = pieces.words.lengths > 0
        probabilities = softmax(np.concatenate(scores)) if scores else np.zeros((0, len(self.labels)))
        if len(probabilities) != np.count_nonzero(seen):
            raise ValueError(f"{len(probabilities)} scores for {np.count_nonzero(seen)} words with pieces")
        best = np.full(len(seen), self.labels.index(self.outside), dtype=np.int64)
        best[seen] = probabilities.argmax(axis=1)
        certain = np.full(len(seen), np.nan)
        certain[seen] = probabilities.max(axis=1)
        return [
            self._prediction(example, best[first:end].tolist(), certain[first:end].tolist())
            for example, first, end in zip(
                examples, pieces.sentences.starts.tolist(), pieces.sentences.ends.tolist(), strict=True
            )
        ]

    def _prediction(self, example: TaggedExample, best: list[int], certain: list[float]) -> Prediction:
        tags = [self.labels[number] for number in best]
        known = [None if math.isnan(probability) else probability for probability in certain]
        details: dict[str, Any] = {"probabilities": known, "unseen": known.count(None)}
        if self.scheme is not None:
            details["entities"] = self._entities(example.words, tags, known)
        seen = [probability for probability in known if probability is not None]
        score = math.prod(seen) if seen else None
        return Prediction(key=example.key, value=tags, score=score, details=details)

    def _entities(
        self, words: Sequence[str], tags: Sequence[str], known: Sequence[float | None]
    ) -> list[dict[str, Any]]:
        assert self.scheme is not None
        between = " " if self.joined == "space" else ""
        text = between.join(words)
        ends = list(itertools.accumulate(len(word) + len(between) for word in words))
        found = []
        for entity in entities_of(tags, self.scheme):
            start = ends[entity.start] - len(between) - len(words[entity.start])
            end = ends[entity.end - 1] - len(between)
            certain = [probability for probability in known[entity.start : entity.end] if probability is not None]
            found.append(
                {
                    "label": entity.type,
                    "text": text[start:end],
                    "start": start,
                    "end": end,
                    "first_word": entity.start,
                    "end_word": entity.end,
                    "score": math.fsum(certain) / len(certain) if certain else None,
                }
            )
        return found

    def measure(self, predictions: Sequence[Prediction], examples: Sequence[TaggedExample]) -> dict[str, float]:
        """Compare with the sentences' tags (see `Task.measure`)."""
        require_labels(examples)
        gold = [example.tags or () for example in examples]
        predicted = [prediction.value for prediction in predictions]
        scores: dict[str, float] = {}
        if self.scheme is not None:
            scores = entity_scores(gold, predicted, scheme=self.scheme)
        if "accuracy" in self.metrics:
            scores["accuracy"] = accuracy(list(itertools.chain(*gold)), list(itertools.chain(*predicted)))
        # A type that is neither there nor predicted has no scores.
        return {name: scores.get(name, 0.0) for name in self.metrics}

    def _entity_metrics(self) -> tuple[str, ...]:
        types = dict.fromkeys(type_of(tag) for tag in self.labels if tag != OUTSIDE)
        return (*ENTITY_METRICS, *(f"{name}_{type_}" for type_ in types for name in ("f1", "precision", "recall")))

    def check(self, examples: Sequence[TaggedExample]) -> None:
        """Refuse tags that the scheme does not know (see `Task.check`).

        Others that were never seen in training are let pass: they are simply never predicted.
        """
        if self.scheme is None:
            return
        checked: set[str] = set()
        for example in examples:
            for tag in set(example.tags or ()) - checked:
                try:
                    entities_of([tag], self.scheme)
                except DataError as error:
                    raise DataError(f"example {example.key}: {error.problem}", allowed=error.allowed) from None
                checked.add(tag)

    def to_json(self) -> dict[str, Any]:
        """Return what `task_from_json` reads."""
        return as_json(self)


def how_joined(examples: Sequence[TaggedExample]) -> Joined:
    """Tell what stands between the words of a file: nothing where most are in scripts that write no spaces."""
    words = [word for example in examples for word in example.words if any(map(str.isalpha, word))]
    without = sum(_NO_SPACES.match(word) is not None for word in words)
    return "nothing" if 2 * without > len(words) else "space"


def _sorted_tags(tags: Iterable[str]) -> tuple[str, ...]:
    # Types together, as people list them: O, B-LOC, I-LOC, B-PER, I-PER.
    return tuple(sorted(tags, key=lambda tag: (tag != OUTSIDE, tag[2:] if tag[1:2] == "-" else tag, tag)))
