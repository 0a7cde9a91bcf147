"""Tagging: one label per word, or per character (named entities, parts of speech).

The tag is predicted at each word's first token (Devlin et al. 2019, 5.3). Words for which the tokenizer gives no token
(control characters, emoji that a vocabulary's cleaning drops) get the tag `outside`.

No token spans two words. Words of languages that write spaces get the tokens that they have in running text: a
byte-level BPE word includes its preceding space, except the first. Chinese characters are joined without a space: a
unigram tokenizer's piece then has no "▁", except the first, and Latin letters and digits give one piece each.

A sentence that is too long is split into windows between words. Each word is predicted once. The last window starts
early enough to be full; the words that it repeats are context only.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, final, get_args

import numpy as np
import tokenizers
import torch
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.errors import DataError, unknown_name
from maskwright.core.types import HeadKind, IntArray
from maskwright.data.tokenizers.backends import running_text
from maskwright.data.tokenizers.stream_encoder import StreamEncoder
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.words.scripts import HAN_CLASS
from maskwright.finetuning.examples import TaggedExample
from maskwright.finetuning.features import FeatureBatch, Features, Ranges, lay_out, ranges_of, room
from maskwright.finetuning.metrics.entities import (
    TagScheme,
    entities_of,
    entity_scores,
    mark_entities,
    scheme_of,
    type_of,
)
from maskwright.finetuning.metrics.scores import accuracy
from maskwright.finetuning.tasks.base import (
    Prediction,
    Scores,
    Task,
    check_labels,
    check_metrics,
    learnable,
    number_of,
    require_labels,
    rows,
    softmax,
    unknown_label,
)

Joined = Literal["space", "nothing"]
"""Separator between the words of a sentence."""


@dataclass(frozen=True, slots=True)
class WordPieces:
    """Tokenized sentences, flat. W words, S sentences.

    Attributes:
        ids: Shape (T,), int32.
        words: W token ranges; empty for words without a token.
        sentences: S word ranges.
    """

    ids: IntArray
    words: Ranges
    sentences: Ranges


@dataclass(frozen=True, slots=True)
class WordWindows:
    """Sentences split into U windows.

    Attributes:
        sentences: Shape (U,), ascending, each window's sentence; a sentence without any token has no window.
        tokens: U token ranges.
        words: U ranges of the words predicted in each window.
    """

    sentences: IntArray
    tokens: Ranges
    words: Ranges


def to_pieces(sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, joined: Joined) -> WordPieces:
    """Tokenize sentences, each distinct word once."""
    running = joined == "nothing" and tokenizer.kind == "unigram"
    if running:
        backend = running_text(tokenizers.Tokenizer.from_str(tokenizer.backend.to_str()))
        tokenizer = Tokenizer(backend, tokenizer.special_tokens.names)
    first_space = " " if running else ""
    later_space = " " if tokenizer.kind == "byte_bpe" and joined == "space" else ""
    written = [
        (later_space if place else first_space) + word for words in sentences for place, word in enumerate(words)
    ]
    numbers: dict[str, int] = {}
    which = np.array([numbers.setdefault(word, len(numbers)) for word in written], dtype=np.int64)
    stream = StreamEncoder(tokenizer).encode(list(numbers))
    of_word = ranges_of(stream.lengths).pick(which)
    counts = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
    return WordPieces(stream.ids[of_word.tokens], ranges_of(of_word.lengths), ranges_of(counts))


def shortened(pieces: WordPieces, longest: int) -> WordPieces:
    """Truncate words to `longest` tokens."""
    kept = pieces.words.first(np.asarray(longest))
    return WordPieces(pieces.ids[kept.tokens], ranges_of(kept.lengths), pieces.sentences)


def to_windows(pieces: WordPieces, room: int) -> WordWindows:
    """Split sentences into windows of at most `room` >= 1 tokens; no word may have more."""
    starts = np.append(pieces.words.starts, len(pieces.ids))
    first, last = pieces.sentences.starts, pieces.sentences.ends
    begin, end = starts[first], starts[last]
    rows = np.stack([np.arange(len(first)), begin, end, first, last], axis=1)[end > begin]
    too_long = rows[:, 2] - rows[:, 1] > room
    if not too_long.any():
        windows = rows
    else:
        cut = [
            window
            for sentence, token, end, word, last_word in rows[too_long].tolist()
            for window in _cut(sentence, token, end, word, last_word, starts, room)
        ]
        windows = np.concatenate([rows[~too_long], np.array(cut, dtype=np.int64)])
        windows = windows[np.lexsort((windows[:, 3], windows[:, 0]))]
    return WordWindows(windows[:, 0], Ranges(windows[:, 1], windows[:, 2]), Ranges(windows[:, 3], windows[:, 4]))


def _cut(
    sentence: int, token: int, end: int, word: int, last_word: int, starts: IntArray, room: int
) -> list[tuple[int, int, int, int, int]]:
    """Split one sentence: (sentence, first token, end token, first predicted word, end word) of each window."""
    windows = []
    while end - token > room:
        # The first word that does not fit completely.
        next_word = int(np.searchsorted(starts, token + room, side="right")) - 1
        windows.append((sentence, token, int(starts[next_word]), word, next_word))
        word, token = next_word, int(starts[next_word])
    # The last window starts earlier, so that it is full.
    full = int(starts[np.searchsorted(starts, end - room, side="left")])
    windows.append((sentence, full, end, word, last_word))
    return windows


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
        labels: The tags as in the file.
        scheme: Entity scheme: "IO", "BIO", "IOBES", "BILOU", "BMES"; None for tags that mark
            no entities (parts of speech).
        metrics: Reported metrics, the main one first: "f1", "precision", "recall" of entities with exact boundaries and
            type (`metrics.entity_scores`), also per type ("f1_PER"), and "accuracy" of tags.
        joined: Separator between words in running text: "space", or "nothing" for Chinese characters.
        outside: The tag of words without a token: "O", or the most frequent tag of the training file.
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
        """Make a task with the tags, scheme and word separator of the training examples.

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
        """Width of the head's last layer (see `Task.num_outputs`)."""
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
        """Lay out sentences as sequences, one per window (see the module and `Task.features`).

        Sentences without any token have no unit. `num_cut` counts sentences with a truncated word.
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
        """Split scores into one array (tags, C) per unit."""
        assert batch.positions is not None
        of_word = batch.units[torch.searchsorted(batch.batch.cu_seqlens, batch.positions, right=True) - 1]
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
        for entity in entities_of(tags):
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
            scores = entity_scores(gold, predicted)
        if "accuracy" in self.metrics:
            scores["accuracy"] = accuracy(list(itertools.chain(*gold)), list(itertools.chain(*predicted)))
        # A type that occurs neither in the labels nor in the predictions has no scores.
        return {name: scores.get(name, 0.0) for name in self.metrics}

    def _entity_metrics(self) -> tuple[str, ...]:
        types = dict.fromkeys(type_of(tag) for tag in self.labels if tag != OUTSIDE)
        return (*ENTITY_METRICS, *(f"{name}_{type_}" for type_ in types for name in ("f1", "precision", "recall")))

    def check(self, examples: Sequence[TaggedExample]) -> None:
        """Raise on tags that mark no entity (see `Task.check`).

        Valid tags that do not occur in training pass; they are never predicted.
        """
        if self.scheme is None:
            return
        checked: set[str] = set()
        for example in examples:
            for tag in set(example.tags or ()) - checked:
                try:
                    entities_of([tag])
                except DataError as error:
                    raise DataError(f"example {example.key}: {error.problem}", allowed=error.allowed) from None
                checked.add(tag)


def how_joined(examples: Sequence[TaggedExample]) -> Joined:
    """Guess the word separator of a file: nothing if most words are in scripts without spaces."""
    words = [word for example in examples for word in example.words if any(map(str.isalpha, word))]
    without = sum(_NO_SPACES.match(word) is not None for word in words)
    return "nothing" if 2 * without > len(words) else "space"


def _sorted_tags(tags: Iterable[str]) -> tuple[str, ...]:
    # Grouped by type: O, B-LOC, I-LOC, B-PER, I-PER.
    return tuple(sorted(tags, key=lambda tag: (tag != OUTSIDE, tag[2:] if tag[1:2] == "-" else tag, tag)))
