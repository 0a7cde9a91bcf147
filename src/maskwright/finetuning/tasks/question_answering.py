"""Answering questions by a part of a text: SQuAD 1.1 and 2.0, CMRC 2018, DRCD.

A head gives each token two scores, of being the answer's first and its last (Devlin et al. 2019, 4.2); a question that
the text does not answer has its answer at the classification token (4.3). Sequences, decoding and defaults are those of
Google's BERT (run_squad.py).
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, final, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.errors import DataError, unknown_name
from maskwright.core.types import HeadKind, IntArray
from maskwright.data.tokenizers.stream_encoder import StreamEncoder
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.words.scripts import HAN_CLASS
from maskwright.finetuning.examples import QuestionExample
from maskwright.finetuning.features import FeatureBatch, Features
from maskwright.finetuning.layout import Ranges, Sequences, lay_out, ranges_of, room
from maskwright.finetuning.tasks.answer_decoding import Found, best_answers
from maskwright.finetuning.tasks.answer_scores import AnswerMetric, published_scores
from maskwright.finetuning.tasks.answer_texts import NO_ANSWER, AnswerTexts, encode_answer_texts
from maskwright.finetuning.tasks.answer_windows import Windows, cut_windows, widest_context
from maskwright.finetuning.tasks.base import Prediction, Scores, Task
from maskwright.finetuning.tasks.parts import as_json, learnable, require_labels, rows

_HAN = re.compile(f"[{HAN_CLASS}]")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswering(Task[QuestionExample]):
    """The part of a text that answers a question.

    Attributes:
        metric: By whose script answers are scored; with "squad_v2" questions may have no answer.
        doc_stride: Tokens from the beginning of a window of a long text to that of the next (run_squad.py:102-105;
            transformers' `stride` is the overlap of windows instead).
        max_query_length: Tokens of a question; what is more is cut off. Never more than half of a sequence.
        max_answer_length: Tokens of an answer at most.
        n_best: Beginnings and ends that are tried in each window, and answers that are told at most.
        null_threshold: A question has no answer if that scores better than the best answer by more than this, in nats.
            It is tuned on development examples (`tune_null_threshold`); only for "squad_v2".
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
        """Make a task that is scored as some examples (training ones) ask for.

        "squad_v2" if there are questions without an answer, "cmrc" if most answers are Chinese, else "squad".
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
        """Width of the head's last layer."""
        return 2

    @property
    def impossible(self) -> bool:
        """Whether questions may have no answer."""
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
        """Turn each question with its text into one or more sequences (see `Task.features`).

        Windows that do not hold the whole answer are learnt as having none, at the classification token, in SQuAD 1.1
        as well (run_squad.py:366-385). Of several right answers the first whose place is known is learnt. Questions
        without such a one are left out of training, and so are answers of nothing that the tokenizer sees. `num_cut`
        counts questions that were cut off; no text is.

        Raises:
            DataError: If no example can be learnt from, or one has no answer and the task says that all have.
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
        # Texts follow the questions in one stream of tokens.
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
        """Return the tokens of the answer that is learnt of each example; an empty range where there is none."""
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
        """Return the mean of both cross entropies over all tokens of a sequence, summed, and the number of sequences.

        All tokens compete, those of the question too (run_squad.py:643-662).
        """
        assert batch.labels is not None
        columns = torch.arange(int(batch.lengths.max()), device=scores.device)
        inside_BL = columns < batch.lengths[:, None]
        slots_BL = torch.where(inside_BL, batch.batch.first_tokens[:, None] + columns, 0)
        scores_BL2 = scores[slots_BL].masked_fill(~inside_BL[:, :, None], -torch.inf)
        return F.cross_entropy(scores_BL2, batch.labels, reduction="sum") / 2, len(batch.labels)

    def by_unit(self, scores: Tensor, batch: FeatureBatch) -> list[Scores]:
        """Cut scores into one array (L, 2) a window."""
        places = Ranges(*((first := batch.batch.first_tokens.cpu().numpy()), first + batch.lengths.cpu().numpy()))
        return rows(scores.detach().cpu()[places.tokens], places.lengths.tolist())

    def predictions(
        self,
        scores: Sequence[Scores],
        features: Features,
        examples: Sequence[QuestionExample],
        tokenizer: Tokenizer,
    ) -> list[Prediction]:
        """Tell the best answer to each question, "" for none; the score is its probability among the answers told.

        An answer is a part of the text as it is written there. Details hold the best "answers", each with its "text",
        its characters [start, end) and its probability as "score"; and, if questions may have no answer, the
        "no_answer_score", by how much having none scores better than the best answer, in nats, and the
        "no_answer_probability". Where the text has no token, the answer is "" and no other is told.
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
        # The window least sure of it decides (run_squad.py:770-776).
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
            # Where there is no answer to compare with, one that scores 0 stands for it (run_squad.py:833-838).
            difference = none - (answers[0].score if answers else 0.0)
            details |= {"no_answer_score": difference, "no_answer_probability": probabilities[-1]}
            if difference > self.null_threshold or not answers:
                value, score = "", probabilities[-1]
        return Prediction(key=key, value=value, score=score, details=details)

    def measure(self, predictions: Sequence[Prediction], examples: Sequence[QuestionExample]) -> dict[str, float]:
        """Score answers as the published script does (see `Task.measure`).

        "f1" and "exact_match" in percent. For "squad_v2" also those of questions with and without answers ("HasAns_",
        "NoAns_"), and the best that another `null_threshold` would give, with that threshold ("best_f1",
        "best_f1_thresh", "best_exact", "best_exact_thresh"); the best is chosen on the examples that it is measured on.
        """
        require_labels(examples)
        self.check(examples)
        return published_scores(self.metric, predictions, examples)

    def with_null_threshold(self, threshold: float) -> Self:
        """Return the same task with another `null_threshold`, e.g. that of `tune_null_threshold`."""
        return replace(self, null_threshold=threshold)

    def check(self, examples: Sequence[QuestionExample]) -> None:
        """Refuse questions without an answer where all must have one (see `Task.check`)."""
        for example in examples:
            if example.is_impossible and not self.impossible:
                raise self._without_answer(example)

    def _without_answer(self, example: QuestionExample) -> DataError:
        return DataError(
            f"question {example.key} has no answer, but every question scored by {self.metric!r} has one",
            todo='Set metric to "squad_v2", or leave such questions out.',
        )

    def to_json(self) -> dict[str, Any]:
        """Return what `task_from_json` reads."""
        return as_json(self)


def _targets(spans: Ranges, windows: Windows, laid: Sequences) -> IntArray:
    """Return first and last token of the answer in each window, counted in its sequence. Shape (W, 2)."""
    answers = spans.pick(windows.examples)
    whole = (answers.lengths > 0) & (answers.starts >= windows.tokens.starts) & (answers.ends <= windows.tokens.ends)
    begin = laid.second_starts - laid.cu_seqlens[:-1] - windows.tokens.starts
    tokens = np.stack([answers.starts + begin, answers.ends - 1 + begin], axis=1)
    targets: IntArray = np.where(whole[:, None], tokens, 0)
    return targets
