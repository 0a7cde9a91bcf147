"""Tagging: one label per word, or per character (named entities, parts of speech).

The tag is predicted at each word's first token (Devlin et al. 2019, 5.3). Words for which the tokenizer gives no token
(control characters, emoji that a vocabulary's cleaning drops) get the tag `outside`.

No token spans two words. Words of languages that write spaces get the tokens that they have in running text: a
byte-level BPE word includes its preceding space, except the first. Chinese characters are joined without a space: a
unigram tokenizer's piece then has no "▁", except the first, and Latin letters and digits give one piece each.

A sentence that is too long is split into windows, each of which repeats the last quarter of the one before. Each word
is predicted once, in the window in which it has more context.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self, final

import numpy as np
import tokenizers
from pydantic import BeforeValidator, model_validator

from maskwright.core.errors import DataError
from maskwright.core.ranges import Ranges, cut_windows, ranges_of
from maskwright.core.types import HeadKind, IntArray
from maskwright.data.scripts import NO_SPACES_CLASS
from maskwright.data.tokenizers.backends import running_text
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.examples import TaggedExample
from maskwright.finetuning.features import Features, Layout, encode_distinct, lay_out
from maskwright.finetuning.metrics.entities import entities_of, entity_scores, mark_entities
from maskwright.finetuning.metrics.scores import Report, accuracy, class_report
from maskwright.finetuning.readers.options import as_name
from maskwright.finetuning.readers.tagged import word_spans
from maskwright.finetuning.tasks.base import AS_NAMES, NOT_EMPTY, Prediction, Scores, Task, softmax, unknown_label

Joined = Literal["space", "nothing"]
"""Separator between the words of a sentence."""


def encode_words(sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, joined: Joined) -> tuple[IntArray, Ranges]:
    """Tokenize words; return flat token ids, and the range of each word, empty where the tokenizer gives no token."""
    running = joined == "nothing" and tokenizer.kind == "unigram"
    if running:
        backend = running_text(tokenizers.Tokenizer.from_str(tokenizer.backend.to_str()))
        tokenizer = Tokenizer(backend, tokenizer.special_tokens.names)
    first_space = " " if running else ""
    later_space = " " if tokenizer.kind == "byte_bpe" and joined == "space" else ""
    written = [
        (later_space if number else first_space) + word for words in sentences for number, word in enumerate(words)
    ]
    return encode_distinct(written, tokenizer)


def to_windows(words: Ranges, sentences: Ranges, most: int) -> tuple[IntArray, Ranges, Ranges]:
    """Split sentences, ranges of words, into windows of at most `most` >= 1 tokens.

    Return the sentence of each window, shape (U,), ascending; the token ranges of the windows; the ranges of the words
    predicted in each, of which at least one has tokens.
    """
    starts = np.append(words.starts, words.lengths.sum())
    tokens = Ranges(starts[sentences.starts], starts[sentences.ends])
    of_sentence, windows = cut_windows(tokens, np.full(len(tokens.starts), most))
    # A word is predicted where it has more context: from the middle of the overlap on, in the next window.
    is_last = np.append(of_sentence[1:] != of_sentence[:-1], True)
    until = np.where(is_last, windows.ends, (windows.ends + np.roll(windows.starts, -1)) // 2)
    word_ends = np.searchsorted(words.starts, until)
    predicted = Ranges(np.append(0, word_ends)[:-1], word_ends)
    seen = np.append(0, np.cumsum(words.lengths > 0))
    kept = np.flatnonzero(seen[predicted.ends] > seen[predicted.starts])
    return of_sentence[kept], windows.pick(kept), predicted.pick(kept)


OUTSIDE = "O"
TagMetric = Literal["f1", "precision", "recall", "accuracy"]

_NO_SPACES = re.compile(f"[{NO_SPACES_CLASS}]")


@final
class Tagging(Task):
    """A tag for each word.

    Attributes:
        labels: The tags as in the file.
        entities: Whether the tags mark entities ("B-PER"), in any scheme, rather than parts of speech.
        metrics: Reported metrics, the main one first: "f1", "precision", "recall" of entities with exact boundaries and
            type (`metrics.entity_scores`), and "accuracy" of tags.
        joined: Separator between words in running text: "space", or "nothing" for Chinese characters.
        outside: The tag of words without a token: "O", or the most frequent tag of the training file.
    """

    head: ClassVar[HeadKind] = "token"
    label_word: ClassVar[str] = "tag"
    kind: Literal["tagging"] = "tagging"
    entities: bool = False
    metrics: Annotated[tuple[TagMetric, ...], AS_NAMES, NOT_EMPTY] = ("accuracy",)
    joined: Joined = "space"
    outside: Annotated[str, BeforeValidator(as_name)] = OUTSIDE

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.entities and set(self.metrics) != {"accuracy"}:
            raise DataError(f"the metrics {', '.join(self.metrics)} are of entities, which these tags do not mark")
        if self.outside not in self.labels:
            raise unknown_label("the task's tag outside of entities", self.outside, self.labels, "tag")
        return self

    @classmethod
    def infer_fields(cls, examples: Sequence[TaggedExample]) -> dict[str, Any]:
        """Return the tags of the training examples, whether they mark entities, and the word separator."""
        counts = Counter(tag for example in examples for tag in example.tags or ())
        entities = mark_entities(counts)
        fields: dict[str, Any] = {
            # Grouped by type: O, B-LOC, I-LOC, B-PER, I-PER.
            "labels": sorted(counts, key=lambda tag: (tag != OUTSIDE, tag[2:] if tag[1:2] == "-" else tag, tag)),
            "entities": entities,
            "metrics": ("f1", "precision", "recall", "accuracy") if entities else ("accuracy",),
            "joined": how_joined(examples),
        }
        if OUTSIDE not in counts and counts:
            fields["outside"] = counts.most_common(1)[0][0]
        return fields

    def features(self, examples: Sequence[TaggedExample], layout: Layout, *, training: bool) -> Features:
        """Lay out sentences as sequences, one per window (see the module and `Task.features`).

        Sentences without any token have no unit. `truncated` are sentences with a truncated word.
        """
        available = layout.text_tokens(pair=False)
        counts = np.array([len(example.words) for example in examples], dtype=np.int64)
        ids, whole = encode_words([example.words for example in examples], layout.tokenizer, self.joined)
        truncated = whole.first(np.asarray(available))
        ids, words = ids[truncated.tokens], ranges_of(truncated.lengths)
        of_window, windows, predicted = to_windows(words, ranges_of(counts), available)
        laid = lay_out(ids, windows, None, layout)
        seen = words.lengths[predicted.tokens] > 0
        tagged = predicted.tokens[seen]
        moved = np.repeat(laid.cu_seqlens[:-1] + 1 - windows.starts, predicted.lengths)[seen]
        return replace(
            laid,
            examples=of_window,
            positions=words.starts[tagged] + moved,
            words=tagged,
            labels=self._targets(examples)[tagged] if training else None,
            truncated=np.unique(np.repeat(np.arange(len(examples)), counts)[whole.lengths > available]),
        )

    def _targets(self, examples: Sequence[TaggedExample]) -> IntArray:
        numbers = {label: number for number, label in enumerate(self.labels)}
        targets = []
        for example in examples:
            assert example.tags is not None
            for tag in example.tags:
                if tag not in numbers:
                    raise unknown_label(example.location, tag, self.labels, "tag")
                targets.append(numbers[tag])
        return np.array(targets, dtype=np.int64)

    def decode(self, scores: Scores, features: Features, examples: Sequence[TaggedExample]) -> list[Prediction]:
        """List each sentence's tags, one per word.

        Details hold the "probabilities" of the words' tags (None for words that the tokenizer drops, "unseen" says how
        many), and the "entities" with the words [first_word, end_word), the characters [start, end) of the text (see
        `text_of`), and the mean probability of their words as "score"; the "words" of a text that was split.
        """
        assert features.words is not None
        probabilities = softmax(scores)
        best = dict(zip(features.words.tolist(), probabilities.argmax(axis=1).tolist(), strict=True))
        certain = dict(zip(features.words.tolist(), probabilities.max(axis=1).tolist(), strict=True))
        predictions, end = [], 0
        for example in examples:
            words = range(end, end := end + len(example.words))
            tags = [self.labels[best[word]] if word in best else self.outside for word in words]
            predictions.append(self._prediction(example, tags, [certain.get(word) for word in words]))
        return predictions

    def _prediction(self, example: TaggedExample, tags: Sequence[str], known: Sequence[float | None]) -> Prediction:
        details: dict[str, Any] = {"probabilities": known, "unseen": known.count(None)}
        if self.entities:
            details["entities"] = self._entities(example, tags, known)
        if example.text is not None:
            details["words"] = list(example.words)
        return Prediction(key=example.key, value=tags, score=None, details=details)

    def _entities(
        self, example: TaggedExample, tags: Sequence[str], known: Sequence[float | None]
    ) -> list[dict[str, Any]]:
        text = self.text_of(example)
        if example.text is None:
            ends = itertools.accumulate(len(word) + len(self.between) for word in example.words)
            starts = [0, *ends]
            spans = [(start, start + len(word)) for start, word in zip(starts, example.words, strict=False)]
        else:
            spans = word_spans(example.text)
        entities = []
        for entity in entities_of(tags):
            start, end = spans[entity.start][0], spans[entity.end - 1][1]
            certain = [probability for probability in known[entity.start : entity.end] if probability is not None]
            entities.append(
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
        return entities

    @property
    def between(self) -> str:
        return " " if self.joined == "space" else ""

    def text_of(self, example: TaggedExample) -> str:
        """Return the text that the words were split from, else the words joined as in running text."""
        return self.between.join(example.words) if example.text is None else example.text

    def measure(self, predictions: Sequence[Prediction], examples: Sequence[TaggedExample]) -> dict[str, float]:
        gold = [example.tags or () for example in examples]
        predicted = [prediction.value for prediction in predictions]
        scores = entity_scores(gold, predicted) if self.entities else {}
        scores["accuracy"] = accuracy(list(itertools.chain(*gold)), list(itertools.chain(*predicted)))
        return {name: scores[name] for name in self.metrics}

    def report(self, predictions: Sequence[Prediction], examples: Sequence[TaggedExample]) -> Report:
        """Return the scores of each entity type, or of each tag where tags mark no entities; tags by word."""
        gold = [example.tags or () for example in examples]
        predicted = [prediction.value for prediction in predictions]
        of_tags = class_report(list(itertools.chain(*gold)), list(itertools.chain(*predicted)), self.labels)
        if not self.entities:
            return of_tags
        scores = entity_scores(gold, predicted)
        counts = Counter(entity.type for tags in gold for entity in entities_of(tags))
        by_type = {
            type_: {**{name: scores[f"{name}_{type_}"] for name in ("precision", "recall", "f1")}, "examples": count}
            for type_, count in sorted(counts.items())
        }
        return Report(by_type, of_tags.confusion)

    def limit(self, layout: Layout) -> str:
        return f"a word of more than {layout.text_tokens(pair=False)} tokens"

    def check(self, examples: Sequence[TaggedExample]) -> None:
        """Raise on tags that mark no entity. Valid tags that do not occur in training pass and are never predicted."""
        for example in examples if self.entities else ():
            try:
                entities_of(example.tags or ())
            except DataError as error:
                raise DataError(f"{example.location}: {error.problem}", allowed=error.allowed) from None


def how_joined(examples: Sequence[TaggedExample]) -> Joined:
    """Guess the word separator of a file: nothing if most words are in scripts without spaces."""
    words = [word for example in examples for word in example.words if any(map(str.isalpha, word))]
    without = sum(_NO_SPACES.match(word) is not None for word in words)
    return "nothing" if 2 * without > len(words) else "space"
