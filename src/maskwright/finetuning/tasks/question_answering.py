"""Extractive question answering: SQuAD 1.1 and 2.0, CMRC 2018, DRCD.

The head gives each token two scores, for being the answer's first and its last token (Devlin et al. 2019, 4.2). A
question that the context does not answer has its answer at the classification token (4.3). Windows, decoding and
defaults are those of Google's BERT (run_squad.py). A long context gives several windows, each with the whole question:
each window starts `doc_stride` tokens after the one before (transformers' `stride` is the overlap instead).
"""

import itertools
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import PositiveInt, model_validator
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.errors import DataError
from maskwright.core.ranges import Ranges, cut_windows, ranges_of
from maskwright.core.types import BoolArray, HeadKind, IntArray
from maskwright.data.scripts import HAN_CLASS, code_points
from maskwright.data.tokenizers.stream_encoder import StreamEncoder
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.examples import QuestionExample
from maskwright.finetuning.features import FeatureBatch, Features, Layout, encode_distinct, lay_out
from maskwright.finetuning.metrics.answers import (
    BestThreshold,
    best_threshold,
    cmrc2018,
    score_questions,
    squad,
    squad_v2,
)
from maskwright.finetuning.tasks.base import Prediction, Scores, Task, softmax

NO_ANSWER = -1
"""Offset of tokens at which no answer starts or ends."""


@dataclass(frozen=True, slots=True)
class AnswerTexts:
    """Tokenized distinct contexts, flat, without special tokens.

    `offsets`, (T, 2): characters [start, end) of its text that each token covers, without preceding whitespace, with
    combining marks that the tokenizer dropped; `NO_ANSWER` for whitespace only. `tokens`: token range of each text.
    `texts`, (examples,): index of each example's text.
    """

    ids: IntArray
    offsets: NDArray[np.int32]
    tokens: Ranges
    texts: IntArray

    def target(self, number: int, example: QuestionExample) -> tuple[int, int]:
        """Return the range of tokens that overlap the first answer with a known position; (0, 0) if none does."""
        answer = next((answer for answer in example.answers if answer.start is not None), None)
        if answer is None or answer.start is None:
            return 0, 0
        start, end, text = answer.start, answer.start + len(answer.text), self.texts[number]
        low, high = int(self.tokens.starts[text]), int(self.tokens.ends[text])
        covering = low + np.flatnonzero(self.offsets[low:high, 0] != NO_ANSWER)
        first = int(np.searchsorted(self.offsets[covering, 1], start, side="right"))
        last = int(np.searchsorted(self.offsets[covering, 0], end, side="left")) - 1
        return (int(covering[first]), int(covering[last]) + 1) if first <= last and start < end else (0, 0)


def encode_answer_texts(texts: Sequence[str], tokenizer: Tokenizer) -> AnswerTexts:
    """Tokenize the contexts of all examples, each distinct one once."""
    numbers: dict[str, int] = {}
    of_example = np.array([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.int64)
    stream = StreamEncoder(tokenizer, with_offsets=True).encode(list(numbers))
    assert stream.offsets is not None
    starts, ends = stream.offsets.first, stream.offsets.end
    characters = ranges_of(np.fromiter(map(len, numbers), dtype=np.int64, count=len(numbers)))
    codes = code_points("".join(numbers))
    is_mark = _where(codes, lambda character: unicodedata.category(character).startswith("M"))
    if is_mark.any():
        # A tokenizer that strips accents ends the token of "e" before the mark that is written after it.
        text_ends = np.repeat(characters.ends, stream.lengths)
        next_starts = np.where(is_mark, len(codes), np.arange(len(codes)))
        no_mark = np.append(np.minimum.accumulate(next_starts[::-1])[::-1], len(codes))
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


def widest_context(examples: IntArray, windows: Ranges) -> BoolArray:
    """Return which tokens of windows, range by range, have their maximum context there; shape (sum of lengths,).

    A token's context is min(tokens to its left, to its right) + 0.01 * window length; of equal windows the first counts
    (run_squad.py, `_check_is_max_context`). `examples`, (W,), ascending, are those of the windows.
    """
    widest = np.ones(int(windows.lengths.sum()), dtype=np.bool_)
    several = np.bincount(examples)[examples] > 1
    shared, is_shared = windows.pick(several), np.repeat(several, windows.lengths)
    of_window = np.repeat(np.arange(len(shared.starts)), shared.lengths)
    tokens, of_example = shared.tokens, examples[several][of_window]
    left, right = tokens - shared.starts[of_window], shared.ends[of_window] - 1 - tokens
    context = np.minimum(left, right) + 0.01 * shared.lengths[of_window]
    order = np.lexsort((-context, tokens, of_example))  # by token, the window with the most context first
    same = (np.diff(tokens[order]) == 0) & (np.diff(of_example[order]) == 0)
    is_first = np.zeros(len(order), dtype=np.bool_)
    is_first[order] = ~np.append(False, same)[: len(order)]
    widest[is_shared] = is_first
    return widest


class AnswerSpan(NamedTuple):
    """A candidate answer: characters [start, end) of the context, and the summed scores of its first and last token."""

    text: str
    start: int
    end: int
    score: float


def best_answers(
    scores: Scores, features: Features, texts: Sequence[str], *, n_best: int, max_length: int
) -> list[list[AnswerSpan]]:
    """Return the best distinct answers to each question, best first (run_squad.py, `write_predictions`).

    Combines the best `n_best` starts and ends of each window; an answer's score is the sum of both. `scores`, (T, 2),
    are in float64; `texts` are the contexts of the examples. An answer starts where its first token has the widest
    context.

    DEVIATION: run_squad.py takes the best starts and ends of all tokens and then drops those outside of the context, so
    that it may find none. Here only tokens of the context compete; if none of the best starts and ends form a valid
    span, all are tried.
    """
    assert features.offsets is not None
    assert features.widest is not None
    ends = features.offsets[:, 0] != NO_ANSWER
    usable = np.where(np.stack([features.widest & ends, ends], axis=1), scores, -np.inf)
    bounds = np.searchsorted(features.examples, np.arange(len(texts) + 1)).tolist()
    answers = []
    for text, low, high in zip(texts, bounds[:-1], bounds[1:], strict=True):
        windows = list(itertools.pairwise(features.cu_seqlens[low : high + 1].tolist()))
        spans: list[tuple[float, int, int]] = []
        for tried in (n_best, len(usable)):
            spans = spans or [span for window in windows for span in _spans(usable, *window, tried, max_length)]
        distinct: dict[str, AnswerSpan] = {}
        for score, first, last in sorted(spans, key=lambda span: -span[0]):
            start, end = int(features.offsets[first, 0]), int(features.offsets[last, 1])
            distinct.setdefault(text[start:end], AnswerSpan(text[start:end], start, end, score))
            if len(distinct) == n_best:
                break
        answers.append(list(distinct.values()))
    return answers


def _spans(scores: Scores, begin: int, end: int, tried: int, max_length: int) -> Iterator[tuple[float, int, int]]:
    """Yield (score, first token, last token) of the spans of the best starts and ends of a window [begin, end)."""
    firsts, lasts = np.argsort(-scores[begin:end], axis=0, kind="stable")[:tried].T + begin
    sums = scores[firsts, 0][:, None] + scores[lasts, 1]
    lengths = lasts - firsts[:, None]
    for row, column in zip(*np.nonzero(np.isfinite(sums) & (lengths >= 0) & (lengths < max_length)), strict=True):
        yield float(sums[row, column]), int(firsts[row]), int(lasts[column])


AnswerMetric = Literal["squad", "squad_v2", "cmrc"]
"""The official evaluation script: SQuAD 1.1; SQuAD 2.0, with unanswerable questions; CMRC 2018, also for DRCD."""


def _best(
    predictions: Sequence[Prediction], examples: Sequence[QuestionExample], measure: Literal["exact", "f1"]
) -> BestThreshold:
    # The best answers, regardless of the threshold.
    answers = [best[0]["text"] if (best := each.details["answers"]) else "" for each in predictions]
    no_answer = [each.details["no_answer_score"] for each in predictions]
    return best_threshold(score_questions(_references(examples), answers), no_answer, measure)


def _references(examples: Sequence[QuestionExample]) -> list[list[str]]:
    return [[answer.text for answer in example.answers] for example in examples]


_HAN = re.compile(f"[{HAN_CLASS}]")


@final
class QuestionAnswering(Task):
    """The span of a context that answers a question.

    Attributes:
        metric: The official script; with "squad_v2" questions may be unanswerable.
        doc_stride: Tokens between the starts of windows of a long context (run_squad.py:102-105).
        max_query_length: Maximum tokens of a question, at most half of a sequence.
        max_answer_length: Maximum tokens of an answer.
        n_best: Starts and ends tried per window, and maximum number of predicted answers.
        null_threshold: A question is unanswerable if that scores better than the best answer by more than this, in
            nats. Tuned on development examples (`tuned`; Devlin et al. 2019, 4.3); only for "squad_v2".
    """

    head: ClassVar[HeadKind] = "span"
    outputs: ClassVar[int] = 2
    kind: Literal["question_answering"] = "question_answering"
    metric: AnswerMetric = "squad"
    doc_stride: PositiveInt = 128
    max_query_length: PositiveInt = 64
    max_answer_length: PositiveInt = 30
    n_best: PositiveInt = 20
    null_threshold: float = 0.0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.null_threshold and not self.impossible:
            raise DataError(
                f"null_threshold is {self.null_threshold}, but every question scored by {self.metric!r} has an answer",
                hint='Set metric to "squad_v2", or leave the threshold out.',
            )
        return self

    @classmethod
    def infer_fields(cls, examples: Sequence[QuestionExample]) -> dict[str, Any]:
        """Return the metric: "squad_v2" if some are unanswerable, "cmrc" if most answers are Chinese, else "squad"."""
        answers = [answer.text for example in examples for answer in example.answers]
        if any(example.is_impossible for example in examples):
            return {"metric": "squad_v2"}
        return {"metric": "cmrc" if 2 * sum(map(bool, map(_HAN.search, answers))) > len(answers) else "squad"}

    @property
    def impossible(self) -> bool:
        return self.metric == "squad_v2"

    def features(self, examples: Sequence[QuestionExample], layout: Layout, *, training: bool) -> Features:
        """Lay out each question with its context as one or more sequences (see `Task.features`).

        Windows without the whole answer have the classification token as target, in SQuAD 1.1 too
        (run_squad.py:366-385). Of several right answers the first with a known position is the target. Questions
        without one, or whose answer gives no token, are left out of training. `truncated` are truncated questions.
        """
        available = layout.text_tokens(pair=True)
        texts = encode_answer_texts([example.context for example in examples], layout.tokenizer)
        chosen = np.arange(len(examples), dtype=np.int64)
        spans = np.zeros((len(examples), 2), dtype=np.int64)
        if training:
            spans = np.array([texts.target(number, example) for number, example in enumerate(examples)])
            has_target = [example.is_impossible or end > 0 for example, (_, end) in zip(examples, spans, strict=True)]
            chosen = np.flatnonzero(has_target)
            if not len(chosen):
                raise DataError(
                    f"none of the {len(examples)} questions has an answer that is a part of its context",
                    hint="Check the columns of context and answers.",
                )
        ids, questions = encode_distinct((examples[number].question for number in chosen.tolist()), layout.tokenizer)
        short = questions.first(np.asarray(self._question_tokens(layout)))
        contexts = texts.tokens.pick(texts.texts[chosen])
        of_window, windows = cut_windows(contexts, available - short.lengths, self.doc_stride)
        # Questions and contexts in one flat array.
        moved = len(ids)
        laid = lay_out(
            np.concatenate([ids, texts.ids]),
            short.pick(of_window),
            Ranges(windows.starts + moved, windows.ends + moved),
            layout,
        )
        ends = laid.cu_seqlens[1:] - 1
        context_ranges = Ranges(ends - windows.lengths, ends)
        offsets = np.full((len(laid.ids), 2), NO_ANSWER, dtype=np.int32)
        offsets[context_ranges.tokens] = texts.offsets[windows.tokens]
        widest = None
        if not training:
            widest = np.zeros(len(laid.ids), dtype=np.bool_)
            widest[context_ranges.tokens] = widest_context(of_window, windows)
        answer = Ranges(*spans[chosen][of_window].T)
        whole = (answer.lengths > 0) & (answer.starts >= windows.starts) & (answer.ends <= windows.ends)
        # From tokens of the context to positions in the sequence.
        forward = context_ranges.starts - laid.cu_seqlens[:-1] - windows.starts
        targets = np.stack([answer.starts + forward, answer.ends - 1 + forward], axis=1)
        return replace(
            laid,
            examples=chosen[of_window],
            labels=np.where(whole[:, None], targets, 0) if training else None,
            offsets=offsets,
            widest=widest,
            truncated=chosen[short.lengths < questions.lengths],
        )

    def loss(self, scores: Tensor, labels: Tensor, batch: FeatureBatch) -> Tensor:
        """Return the mean of start and end cross entropy, summed over sequences.

        The softmax is over all tokens, also those of the question (run_squad.py:643-662).
        """
        columns = torch.arange(batch.batch.max_seqlen, device=scores.device)
        inside_BL = columns < batch.batch.lengths[:, None]
        tokens_BL = torch.where(inside_BL, batch.batch.first_tokens[:, None] + columns, 0)
        scores_BL2 = scores[tokens_BL].masked_fill(~inside_BL[:, :, None], -torch.inf)
        return F.cross_entropy(scores_BL2, labels, reduction="sum") / 2

    def decode(self, scores: Scores, features: Features, examples: Sequence[QuestionExample]) -> list[Prediction]:
        """Predict the best answer to each question, or ""; the score is its probability among the returned answers.

        Details hold the best "answers", each with "text", characters "start" and "end" and its probability "score". For
        unanswerable questions also "no_answer_score", the difference in nats between no answer and the best answer, and
        "no_answer_probability". If the context has no token, the prediction is "".
        """
        scores = scores.astype(np.float64)
        all_answers = best_answers(
            scores,
            features,
            [example.context for example in examples],
            n_best=self.n_best,
            max_length=self.max_answer_length,
        )
        of_none = np.full(len(examples), np.inf)
        # The minimum over windows counts (run_squad.py:770-776).
        np.minimum.at(of_none, features.examples, scores[features.cu_seqlens[:-1]].sum(axis=1))
        return [
            self._prediction(example.key, answers, none if self.impossible else None)
            for example, answers, none in zip(examples, all_answers, of_none.tolist(), strict=True)
        ]

    def _prediction(self, key: str, answers: Sequence[AnswerSpan], none: float | None) -> Prediction:
        all_scores = [answer.score for answer in answers] + ([] if none is None else [none])
        probabilities = softmax(np.array(all_scores)).tolist() if all_scores else []
        details: dict[str, Any] = {
            "answers": [
                {**answer._asdict(), "score": probability}
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
        references, answers = _references(examples), [prediction.value for prediction in predictions]
        if not self.impossible:
            return (cmrc2018 if self.metric == "cmrc" else squad)(references, answers)
        best = {name: _best(predictions, examples, name) for name in ("f1", "exact")}
        return {
            **squad_v2(references, answers),
            **{f"best_{name}": each.score for name, each in best.items()},
            **{f"best_{name}_thresh": each.threshold for name, each in best.items()},
        }

    def tuned(self, predictions: Sequence[Prediction], examples: Sequence[QuestionExample]) -> Self:
        """Return the task with the `null_threshold` of the best F1 (see `Task.tuned`)."""
        if not self.impossible:
            return self
        best = _best(predictions, examples, "f1")
        # Best without any answer: a threshold below the smallest score.
        lowest = min(prediction.details["no_answer_score"] for prediction in predictions)
        return self.replace(null_threshold=best.threshold if best.answers else math.nextafter(lowest, -math.inf))

    def limit(self, layout: Layout) -> str:
        return f"a question of more than {self._question_tokens(layout)} tokens"

    def _question_tokens(self, layout: Layout) -> int:
        return min(self.max_query_length, layout.text_tokens(pair=True) // 2)

    def check(self, examples: Sequence[QuestionExample]) -> None:
        for example in examples:
            if example.is_impossible and not self.impossible:
                raise DataError(
                    f"{example.location} has no answer, but every question scored by {self.metric!r} has one",
                    hint='Set metric to "squad_v2", or leave such questions out.',
                )
