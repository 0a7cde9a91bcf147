"""Extractive question answering: SQuAD 1.1 and 2.0, CMRC 2018, DRCD.

The head gives each token two scores, for being the answer's first and its last token (Devlin et al. 2019, 4.2). A
question that the context does not answer has its answer at the classification token (4.3). Windows, decoding and
defaults are those of Google's BERT (run_squad.py). A long context gives several windows, each with the whole question:
each window starts `doc_stride` tokens after the one before (transformers' `stride` is the overlap instead).
"""

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, final, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.errors import DataError, unknown_name
from maskwright.core.types import BoolArray, HeadKind, IntArray
from maskwright.data.tokenizers.stream_encoder import StreamEncoder
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.words.scripts import HAN_CLASS, code_points
from maskwright.finetuning.examples import QuestionExample
from maskwright.finetuning.features import (
    FeatureBatch,
    Features,
    Ranges,
    Sequences,
    lay_out,
    ranges_of,
    room,
    separators_between,
)
from maskwright.finetuning.metrics.answers import (
    BestThreshold,
    best_threshold,
    cmrc2018,
    score_questions,
    squad,
    squad_v2,
)
from maskwright.finetuning.tasks.base import Prediction, Scores, Task, learnable, require_labels, rows

NO_ANSWER = -1
"""Offset of tokens at which no answer starts or ends."""


@dataclass(frozen=True, slots=True)
class AnswerTexts:
    """Tokenized distinct contexts, flat.

    Attributes:
        ids: Shape (T,), int32, without special tokens.
        offsets: Shape (T, 2), int32: characters [start, end) of its text that each token covers, without preceding
            whitespace, with combining marks that the tokenizer dropped; `NO_ANSWER` for whitespace only.
        tokens: Token range of each text.
        texts: Shape (examples,), index of each example's text.
    """

    ids: IntArray
    offsets: NDArray[np.int32]
    tokens: Ranges
    texts: IntArray

    def spans(self, starts: IntArray, ends: IntArray) -> Ranges:
        """Return the range of tokens that overlap characters [start, end) of each example's text; empty if none does.

        Args:
            starts, ends: Shape (examples,).
        """
        covering = np.flatnonzero(self.offsets[:, 0] != NO_ANSWER)
        # Shift characters by text, so that they ascend over all texts and one search suffices.
        width = 1 + int(max(self.offsets.max(initial=0), ends.max(initial=0)))
        text_of_token = np.repeat(np.arange(len(self.tokens.starts)), self.tokens.lengths)[covering]
        token_starts, token_ends = (text_of_token[:, None] * width + self.offsets[covering]).T
        before = self.texts * width
        first = np.searchsorted(token_ends, before + starts, side="right")
        end = np.searchsorted(token_starts, before + ends, side="left")
        found = np.flatnonzero((first < end) & (starts < ends))
        tokens = Ranges(np.zeros(len(starts), dtype=np.int64), np.zeros(len(starts), dtype=np.int64))
        tokens.starts[found] = covering[first[found]]
        tokens.ends[found] = covering[end[found] - 1] + 1
        return tokens


def encode_answer_texts(texts: Sequence[str], tokenizer: Tokenizer) -> AnswerTexts:
    """Tokenize the contexts of all examples, each distinct one once."""
    numbers: dict[str, int] = {}
    of_example = np.array([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.int64)
    stream = StreamEncoder(tokenizer, with_places=True).encode(list(numbers))
    assert stream.places is not None
    starts, ends = stream.places.first, stream.places.end
    characters = ranges_of(np.fromiter(map(len, numbers), dtype=np.int64, count=len(numbers)))
    codes = code_points("".join(numbers))
    is_mark = _where(codes, lambda character: unicodedata.category(character).startswith("M"))
    if is_mark.any():
        # A tokenizer that strips accents ends the token of "e" before the mark that is written after it.
        text_ends = np.repeat(characters.ends, stream.lengths)
        places = np.where(is_mark, len(codes), np.arange(len(codes)))
        no_mark = np.append(np.minimum.accumulate(places[::-1])[::-1], len(codes))
        next_starts = np.append(starts[1:], len(codes))
        ends = np.maximum(ends, np.minimum(np.minimum(no_mark[ends], next_starts), text_ends))
    before = np.repeat(characters.starts, stream.lengths)
    is_space = _where(codes, str.isspace)[starts]
    offsets = np.stack([starts - before, ends - before], axis=1)
    return AnswerTexts(
        ids=stream.ids,
        offsets=np.where(is_space[:, None], NO_ANSWER, offsets).astype(np.int32),
        tokens=ranges_of(stream.lengths),
        texts=of_example,
    )


def _where(codes: NDArray[np.uint32], holds: Callable[[str], bool]) -> BoolArray:
    """Evaluate a predicate on each character, once per distinct one."""
    table = np.bincount(codes).astype(np.bool_)
    for code in np.flatnonzero(table):
        table[code] = holds(chr(code))
    answers: BoolArray = table[codes]
    return answers


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of contexts.

    Attributes:
        examples: Shape (W,), example of each window, ascending.
        tokens: Token range of each window.
    """

    examples: IntArray
    tokens: Ranges


def cut_windows(texts: Ranges, rooms: IntArray, doc_stride: int) -> Windows:
    """Split each example's context into one or more windows.

    Args:
        texts: Token range of each example's context; may be empty.
        rooms: Shape (examples,), maximum tokens of a window, at least 1.
        doc_stride: Distance between starts of windows; at most the length of a window.
    """
    steps = np.minimum(rooms, doc_stride)
    counts = 1 + -(-np.maximum(texts.lengths - rooms, 0) // steps)
    examples = np.repeat(np.arange(len(counts)), counts)
    numbers = np.arange(len(examples)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = texts.starts[examples] + numbers * steps[examples]
    return Windows(examples, Ranges(starts, np.minimum(starts + rooms[examples], texts.ends[examples])))


def text_places(features: Features, tokenizer: Tokenizer) -> Ranges:
    """Return each sequence's window as a range of the flat tokens: between the separators."""
    first_tokens = features.cu_seqlens[:-1]
    # Text never gives a separator's id: "[SEP]" in it is tokenized as text.
    separators = np.flatnonzero(features.ids == tokenizer.special_tokens.sep)
    question_ends = separators[np.searchsorted(separators, first_tokens)]
    return Ranges(question_ends + separators_between(tokenizer), features.cu_seqlens[1:] - 1)


def widest_context(features: Features, tokenizer: Tokenizer, doc_stride: int) -> BoolArray:
    """Return which context tokens have their maximum context in this window. Shape (T,).

    A token's context is min(tokens to its left, to its right) + 0.01 * window length; of equal windows the first counts
    (run_squad.py, `_check_is_max_context`).
    """
    places = text_places(features, tokenizer)
    widest = np.zeros(len(features.ids), dtype=np.bool_)
    widest[places.tokens] = True
    # Only contexts with several windows need a closer look: 1 % in SQuAD at length 384.
    _, which, counts = np.unique(features.examples, return_inverse=True, return_counts=True)
    chosen = np.flatnonzero(counts[which] > 1)
    places, examples = places.pick(chosen), features.examples[chosen]
    lengths = places.lengths
    first_windows = np.searchsorted(examples, examples)
    # All windows of an example but the last have full length.
    steps = np.minimum(lengths[first_windows], doc_stride)
    starts = (np.arange(len(chosen)) - first_windows) * steps
    window = np.repeat(np.arange(len(chosen)), lengths)
    position = places.tokens - np.repeat(places.starts - starts, lengths)

    def context(windows: IntArray) -> NDArray[np.float64]:
        left, right = position - starts[windows], starts[windows] + lengths[windows] - 1 - position
        return np.where((left >= 0) & (right >= 0), np.minimum(left, right) + 0.01 * lengths[windows], -np.inf)

    own = context(window)
    best = np.ones(len(window), dtype=np.bool_)
    for distance in range(1, len(chosen)):
        overlap = False
        for other, is_wider in ((window - distance, np.greater_equal), (window + distance, np.greater)):
            inside = np.clip(other, 0, len(chosen) - 1)
            same = (inside == other) & (examples[inside] == examples[window])
            theirs = np.where(same, context(inside), -np.inf)
            best &= ~is_wider(theirs, own)
            overlap |= bool(np.isfinite(theirs).any())
        if not overlap:
            break
    widest[places.tokens] = best
    return widest


_WINDOWS_AT_ONCE = 512  # With 20 x 20 pairs each, a few MB are held.


@dataclass(frozen=True, slots=True)
class Found:
    """A candidate answer: characters [start, end) of the context, and the summed scores of its first and last token."""

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Candidate spans: window (ascending), flat indices of first and last token, summed scores. Each of shape (N,)."""

    windows: IntArray
    first: IntArray
    last: IntArray
    scores: NDArray[np.float64]


def best_answers(
    scores: Scores, features: Features, texts: Sequence[str], *, begins: BoolArray, n_best: int, max_length: int
) -> list[list[Found]]:
    """Return the best distinct answers to each question, best first (run_squad.py, `write_predictions`).

    Combines the best starts and ends of each window; an answer's score is the sum of both.

    DEVIATION: run_squad.py takes the best starts and ends of all tokens and then drops those outside of the context, so
    that it may find none. Here only tokens of the context compete; if none of the best starts and ends form a valid
    span, all are tried.

    Args:
        scores: Shape (T, 2), float64: start and end score of each token.
        features: With offsets.
        texts: Context of each example.
        begins: Shape (T,), tokens at which an answer may start (see `widest_context`).
        n_best: Starts and ends tried per window, and maximum number of answers.
        max_length: Maximum tokens of an answer.
    """
    assert features.offsets is not None
    ends = features.offsets[:, 0] != NO_ANSWER
    usable = np.where(np.stack([begins & ends, ends], axis=1), scores, -np.inf)
    bounds = np.searchsorted(features.examples, np.arange(len(texts) + 1))
    pairs = _pairs_of_windows(usable, features.cu_seqlens, 0, features.num_units, n_best, max_length)
    pair_bounds = np.searchsorted(pairs.windows, bounds).tolist()
    answers = []
    for example, text in enumerate(texts):
        low, high = pair_bounds[example], pair_bounds[example + 1]
        of_example = pairs
        if low == high:
            begin, end = int(bounds[example]), int(bounds[example + 1])
            every = int(np.diff(features.cu_seqlens[begin : end + 1]).max(initial=0))
            of_example = _pairs_of_windows(usable, features.cu_seqlens, begin, end, every, max_length)
            low, high = 0, len(of_example.scores)
        answers.append(_found(of_example, slice(low, high), features.offsets, text, n_best))
    return answers


def _pairs_of_windows(
    scores: Scores, cu_seqlens: IntArray, begin: int, end: int, n_best: int, max_length: int
) -> _Pairs:
    parts = [
        _pairs(scores, cu_seqlens[first : min(first + _WINDOWS_AT_ONCE, end) + 1], first, n_best, max_length)
        for first in range(begin, end, _WINDOWS_AT_ONCE)
    ]
    nothing = np.zeros(0, dtype=np.int64)
    return _Pairs(
        np.concatenate([nothing, *(part.windows for part in parts)]),
        np.concatenate([nothing, *(part.first for part in parts)]),
        np.concatenate([nothing, *(part.last for part in parts)]),
        np.concatenate([nothing.astype(np.float64), *(part.scores for part in parts)]),
    )


def _pairs(scores: Scores, cu_seqlens: IntArray, first_window: int, n_best: int, max_length: int) -> _Pairs:
    """Combine the K best starts and ends of W windows, L tokens in the longest."""
    lengths = np.diff(cu_seqlens)
    columns = np.arange(int(lengths.max()))
    inside_WL = columns < lengths[:, None]
    places_WL = np.minimum(cu_seqlens[:-1, None] + columns, cu_seqlens[-1] - 1)
    table_WL2 = np.where(inside_WL[:, :, None], scores[places_WL], -np.inf)
    order_WK2 = np.argsort(-table_WL2, axis=1, kind="stable")[:, :n_best]
    best_WK2 = np.take_along_axis(table_WL2, order_WK2, axis=1)
    begin, end = order_WK2[:, :, None, 0], order_WK2[:, None, :, 1]
    sums_WKK = best_WK2[:, :, None, 0] + best_WK2[:, None, :, 1]
    fits = np.isfinite(sums_WKK) & (begin <= end) & (end < begin + max_length)
    window, of_begin, of_end = np.nonzero(fits)
    return _Pairs(
        windows=first_window + window,
        first=cu_seqlens[window] + order_WK2[window, of_begin, 0],
        last=cu_seqlens[window] + order_WK2[window, of_end, 1],
        scores=sums_WKK[fits],
    )


def _found(pairs: _Pairs, chosen: slice, offsets: NDArray[np.int32], text: str, n_best: int) -> list[Found]:
    best_first = chosen.start + np.argsort(-pairs.scores[chosen], kind="stable")
    starts, ends = offsets[pairs.first[best_first], 0].tolist(), offsets[pairs.last[best_first], 1].tolist()
    found: dict[str, Found] = {}
    for start, end, score in zip(starts, ends, pairs.scores[best_first].tolist(), strict=True):
        answer = text[start:end]
        if answer not in found:
            found[answer] = Found(answer, start, end, score)
            if len(found) == n_best:
                break
    return list(found.values())


AnswerMetric = Literal["squad", "squad_v2", "cmrc", "drcd"]
"""The official evaluation script: SQuAD 1.1; SQuAD 2.0, with unanswerable questions; CMRC 2018; DRCD, the same as CMRC
2018."""


def published_scores(
    metric: AnswerMetric, predictions: Sequence[Prediction], examples: Sequence[QuestionExample]
) -> dict[str, float]:
    """Compute the metrics of the official script (see `QuestionAnswering.measure`)."""
    numbered = _numbered(examples)
    told = {str(number): prediction.value for number, prediction in enumerate(predictions)}
    if metric in ("cmrc", "drcd"):
        scores = cmrc2018(numbered, told)
        return {"f1": scores["f1"], "exact_match": scores["em"], "average": scores["average"]}
    if metric == "squad":
        scores = squad(numbered, told)
        return {"f1": scores["f1"], "exact_match": scores["exact_match"]}
    scores = squad_v2(numbered, told)
    best = {name: _best(predictions, examples, name) for name in ("f1", "exact")}
    return {
        "f1": scores["f1"],
        "exact_match": scores["exact"],
        **{name: score for name, score in scores.items() if name.endswith(("s_exact", "s_f1"))},
        **{f"best_{name}": found.score for name, found in best.items()},
        **{f"best_{name}_thresh": found.threshold for name, found in best.items()},
    }


def tune_null_threshold(predictions: Sequence[Prediction], examples: Sequence[QuestionExample]) -> float:
    """Return the `null_threshold` with the best F1 on development examples (Devlin et al. 2019, 4.3).

    Args:
        predictions: Of a "squad_v2" task with any threshold.
        examples: The labeled development examples.

    Raises:
        DataError: If there are no examples, or predictions have no "no_answer_score".
    """
    best = _best(predictions, examples, "f1")
    if best.answers:
        return best.threshold
    # Best without any answer: a threshold below the smallest score.
    return math.nextafter(min(prediction.details["no_answer_score"] for prediction in predictions), -math.inf)


def _best(
    predictions: Sequence[Prediction], examples: Sequence[QuestionExample], measure: Literal["exact", "f1"]
) -> BestThreshold:
    if any("no_answer_score" not in prediction.details for prediction in predictions):
        raise DataError('predictions have no "no_answer_score"', todo='Predict with the metric "squad_v2".')
    # The best answers, regardless of the threshold.
    answers = [prediction.details["answers"] for prediction in predictions]
    told = {str(number): found[0]["text"] if found else "" for number, found in enumerate(answers)}
    sure = {str(number): prediction.details["no_answer_score"] for number, prediction in enumerate(predictions)}
    return best_threshold(score_questions(_numbered(examples), told), sure, measure)


def _numbered(examples: Sequence[QuestionExample]) -> list[QuestionExample]:
    # Scripts find answers by key, and keys in a user's file may repeat.
    return [replace(example, key=str(number)) for number, example in enumerate(examples)]


_HAN = re.compile(f"[{HAN_CLASS}]")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswering(Task[QuestionExample]):
    """The span of a context that answers a question.

    Attributes:
        metric: The official script; with "squad_v2" questions may be unanswerable.
        doc_stride: Tokens between the starts of windows of a long context (run_squad.py:102-105).
        max_query_length: Maximum tokens of a question, at most half of a sequence.
        max_answer_length: Maximum tokens of an answer.
        n_best: Starts and ends tried per window, and maximum number of predicted answers.
        null_threshold: A question is unanswerable if that scores better than the best answer by more than this, in
            nats. Tuned on development examples (`tune_null_threshold`); only for "squad_v2".
    """

    kind: ClassVar[str] = "question_answering"
    head: ClassVar[HeadKind] = "span"
    labels: tuple[str, ...] = field(default=(), init=False)
    metric: AnswerMetric = "squad"
    doc_stride: int = 128
    max_query_length: int = 64
    max_answer_length: int = 30
    n_best: int = 20
    null_threshold: float = 0.0

    def __post_init__(self) -> None:
        if self.metric not in get_args(AnswerMetric):
            problem, allowed, todo = unknown_name(
                f"metric of the task {self.kind!r}", self.metric, get_args(AnswerMetric)
            )
            raise DataError(problem, allowed=allowed, todo=todo)
        for name in ("doc_stride", "max_query_length", "max_answer_length", "n_best"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} is {getattr(self, name)}", allowed="1 or more")
        if not math.isfinite(self.null_threshold):
            raise DataError(f"null_threshold is {self.null_threshold}", allowed="a finite number")
        if self.null_threshold and not self.impossible:
            raise DataError(
                f"null_threshold is {self.null_threshold}, but every question scored by {self.metric!r} has an answer",
                todo='Set metric to "squad_v2", or leave the threshold out.',
            )

    @classmethod
    def for_examples(cls, examples: Sequence[QuestionExample], **fields: Any) -> Self:
        """Make a task with a metric that suits the training examples.

        "squad_v2" if some are unanswerable, "cmrc" if most answers are Chinese, else "squad".
        """
        metric: AnswerMetric = "squad"
        answers = [answer.text for example in examples for answer in example.answers]
        if any(example.is_impossible for example in examples):
            metric = "squad_v2"
        elif 2 * sum(_HAN.search(text) is not None for text in answers) > len(answers):
            metric = "cmrc"
        return cls(**{"metric": metric, **fields})

    @property
    def num_outputs(self) -> int:
        """Width of the head's last layer (see `Task.num_outputs`)."""
        return 2

    @property
    def impossible(self) -> bool:
        """Whether questions may be unanswerable."""
        return self.metric == "squad_v2"

    def features(
        self,
        examples: Sequence[QuestionExample],
        tokenizer: Tokenizer,
        *,
        max_length: int,
        segments: bool,
        training: bool,
    ) -> Features:
        """Lay out each question with its context as one or more sequences (see `Task.features`).

        Windows without the whole answer have the classification token as target, in SQuAD 1.1 too
        (run_squad.py:366-385). Of several right answers the first with a known position is the target. Questions
        without one, or whose answer gives no token, are left out of training. `num_cut` counts truncated questions.

        Raises:
            DataError: If no example can be trained on, or one is unanswerable and the metric does not allow it.
        """
        available = room(tokenizer, max_length, pair=True, needed=2)
        texts = encode_answer_texts([example.context for example in examples], tokenizer)
        chosen = np.arange(len(examples), dtype=np.int64)
        if training:
            spans = self._spans(examples, texts)
            found = (spans.lengths > 0).tolist()
            chosen = learnable(
                examples, [example.is_impossible or has for example, has in zip(examples, found, strict=True)]
            )
            spans = spans.pick(chosen)
        stream = StreamEncoder(tokenizer).encode([examples[number].question for number in chosen.tolist()])
        questions = ranges_of(stream.lengths)
        short = questions.first(np.asarray(min(self.max_query_length, available // 2)))
        # Questions and contexts in one flat array.
        moved = len(stream.ids)
        of_example = texts.tokens.pick(texts.texts[chosen])
        windows = cut_windows(of_example, available - short.lengths, self.doc_stride)
        laid = lay_out(
            np.concatenate([stream.ids, texts.ids]),
            short.pick(windows.examples),
            Ranges(windows.tokens.starts + moved, windows.tokens.ends + moved),
            tokenizer,
            segments=segments,
            pairs=np.ones(len(windows.examples), dtype=np.bool_),
        )
        offsets = np.full((len(laid.ids), 2), NO_ANSWER, dtype=np.int32)
        places = Ranges(laid.second_starts, laid.second_starts + windows.tokens.lengths)
        offsets[places.tokens] = texts.offsets[windows.tokens.tokens]
        return Features(
            ids=laid.ids,
            segment_ids=laid.segment_ids,
            cu_seqlens=laid.cu_seqlens,
            units=np.arange(len(windows.examples), dtype=np.int64),
            examples=chosen[windows.examples],
            labels=_targets(spans, windows, laid) if training else None,
            offsets=offsets,
            num_cut=int(np.count_nonzero(short.lengths < questions.lengths)),
        )

    def _spans(self, examples: Sequence[QuestionExample], texts: AnswerTexts) -> Ranges:
        """Return the token range of each example's target answer; empty if there is none."""
        starts, ends = np.zeros((2, len(examples)), dtype=np.int64)
        for number, example in enumerate(examples):
            if example.is_impossible:
                if not self.impossible:
                    raise self._without_answer(example)
                continue
            for answer in example.answers:
                if answer.start is not None:
                    starts[number], ends[number] = answer.start, answer.start + len(answer.text)
                    break
        return texts.spans(starts, ends)

    def loss(self, scores: Tensor, batch: FeatureBatch) -> tuple[Tensor, int]:
        """Return the mean of start and end cross entropy, summed over sequences, and the number of sequences.

        The softmax is over all tokens, also those of the question (run_squad.py:643-662).
        """
        assert batch.labels is not None
        columns = torch.arange(int(batch.lengths.max()), device=scores.device)
        inside_BL = columns < batch.lengths[:, None]
        slots_BL = torch.where(inside_BL, batch.batch.first_tokens[:, None] + columns, 0)
        scores_BL2 = scores[slots_BL].masked_fill(~inside_BL[:, :, None], -torch.inf)
        return F.cross_entropy(scores_BL2, batch.labels, reduction="sum") / 2, len(batch.labels)

    def by_unit(self, scores: Tensor, batch: FeatureBatch) -> list[Scores]:
        """Split scores into one array (L, 2) per window."""
        places = Ranges(*((first := batch.batch.first_tokens.cpu().numpy()), first + batch.lengths.cpu().numpy()))
        return rows(scores.detach().cpu()[places.tokens], places.lengths.tolist())

    def predictions(
        self,
        scores: Sequence[Scores],
        features: Features,
        examples: Sequence[QuestionExample],
        tokenizer: Tokenizer,
    ) -> list[Prediction]:
        """Predict the best answer to each question, or ""; the score is its probability among the returned answers.

        Details hold the best "answers", each with "text", characters "start" and "end" and its probability "score". For
        unanswerable questions also "no_answer_score", the difference in nats between no answer and the best answer, and
        "no_answer_probability". If the context has no token, the prediction is "".
        """
        if not len(scores) == features.num_units:
            raise ValueError(f"{len(scores)} scores for {features.num_units} windows")
        flat = np.concatenate([*scores, np.zeros((0, 2))]).astype(np.float64)
        found = best_answers(
            flat,
            features,
            [example.context for example in examples],
            begins=widest_context(features, tokenizer, self.doc_stride),
            n_best=self.n_best,
            max_length=self.max_answer_length,
        )
        of_none = np.full(len(examples), np.inf)
        # The minimum over windows counts (run_squad.py:770-776).
        np.minimum.at(of_none, features.examples, flat[features.cu_seqlens[:-1]].sum(axis=1))
        return [
            self._prediction(example.key, answers, none if self.impossible else None)
            for example, answers, none in zip(examples, found, of_none.tolist(), strict=True)
        ]

    def _prediction(self, key: str, answers: Sequence[Found], none: float | None) -> Prediction:
        all_scores = [answer.score for answer in answers] + ([] if none is None else [none])
        highest = max(all_scores, default=0.0)
        powers = [math.exp(score - highest) for score in all_scores]
        total = math.fsum(powers)
        probabilities = [power / total for power in powers]
        details: dict[str, Any] = {
            "answers": [
                {"text": answer.text, "start": answer.start, "end": answer.end, "score": probability}
                for answer, probability in zip(answers, probabilities, strict=False)
            ]
        }
        value, score = ("", None) if not answers else (answers[0].text, probabilities[0])
        if none is not None:
            # Without any answer compare with a score of 0 (run_squad.py:833-838).
            difference = none - (answers[0].score if answers else 0.0)
            details |= {"no_answer_score": difference, "no_answer_probability": probabilities[-1]}
            if difference > self.null_threshold or not answers:
                value, score = "", probabilities[-1]
        return Prediction(key=key, value=value, score=score, details=details)

    def measure(self, predictions: Sequence[Prediction], examples: Sequence[QuestionExample]) -> dict[str, float]:
        """Compute the metrics of the official script (see `Task.measure`).

        "f1" and "exact_match" in percent. For "squad_v2" also those with and without answers ("HasAns_", "NoAns_"), and
        the best scores of any threshold, with that threshold ("best_f1", "best_f1_thresh", "best_exact",
        "best_exact_thresh"), which are selected on these same examples.
        """
        require_labels(examples)
        self.check(examples)
        return published_scores(self.metric, predictions, examples)

    def with_null_threshold(self, threshold: float) -> Self:
        """Return the same task with another `null_threshold`."""
        return replace(self, null_threshold=threshold)

    def check(self, examples: Sequence[QuestionExample]) -> None:
        """Raise on unanswerable questions if the metric does not allow them (see `Task.check`)."""
        for example in examples:
            if example.is_impossible and not self.impossible:
                raise self._without_answer(example)

    def _without_answer(self, example: QuestionExample) -> DataError:
        return DataError(
            f"question {example.key} has no answer, but every question scored by {self.metric!r} has one",
            todo='Set metric to "squad_v2", or leave such questions out.',
        )


def _targets(spans: Ranges, windows: Windows, laid: Sequences) -> IntArray:
    """Return the first and last token of the answer in each window, relative to its sequence. Shape (W, 2)."""
    answers = spans.pick(windows.examples)
    whole = (answers.lengths > 0) & (answers.starts >= windows.tokens.starts) & (answers.ends <= windows.tokens.ends)
    begin = laid.second_starts - laid.cu_seqlens[:-1] - windows.tokens.starts
    tokens = np.stack([answers.starts + begin, answers.ends - 1 + begin], axis=1)
    targets: IntArray = np.where(whole[:, None], tokens, 0)
    return targets
