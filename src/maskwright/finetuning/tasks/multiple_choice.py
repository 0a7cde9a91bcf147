"""Multiple choice: options encoded one by one with their question (Radford et al. 2018; Devlin et al. 2019, 4.4).

Each option is a sequence `[CLS] context [SEP] question option [SEP]` and gets one score; the prediction is a softmax
over the scores of a question's options. As in google-research/albert, race_utils.py: question and option are joined by
a space, or the option replaces the question's blank ("_"); if both together are too long their last tokens are kept,
which hold the option; then the end of the context is truncated.

DEVIATION: RoBERTa's code for RACE (fairseq: tasks/sentence_ranking.py) puts question and option before the context
and keeps their first tokens. Here all families read the context first, as the other systems do.

DEVIATION: the originals replace every "_", also within a word and each of "____". Here a run of them is one blank, and
"_" within a word (a variable's name) is none.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.errors import DataError
from maskwright.core.types import HeadKind
from maskwright.data.tokenizers.stream_encoder import StreamEncoder
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.examples import ChoiceExample
from maskwright.finetuning.features import FeatureBatch, Features, Ranges, lay_out, ranges_of, room
from maskwright.finetuning.metrics.scores import accuracy
from maskwright.finetuning.tasks.base import (
    Prediction,
    Scores,
    Task,
    check_metrics,
    learnable,
    require_labels,
    rows,
    softmax,
)

CHOICE_METRICS = ("accuracy",)
_BLANK = re.compile(r"(?<![^\W_])_+(?![^\W_])")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MultipleChoice(Task[ChoiceExample]):
    """The right one of several options. The number of options may differ between questions.

    Attributes:
        metrics: "accuracy".
        max_option_length: Maximum tokens of question and option together; the first ones are truncated. 128 in ALBERT
            (race_utils.py) and RoBERTa (README.race.md).
    """

    kind: ClassVar[str] = "multiple_choice"
    head: ClassVar[HeadKind] = "choice"
    labels: tuple[str, ...] = field(default=(), init=False)
    metrics: tuple[str, ...] = CHOICE_METRICS
    max_option_length: int = 128

    def __post_init__(self) -> None:
        check_metrics(self.metrics, CHOICE_METRICS, self.kind)
        if self.max_option_length < 1:
            raise DataError(f"max_option_length is {self.max_option_length}", allowed="1 or more tokens")

    @property
    def num_outputs(self) -> int:
        """Width of the head's last layer (see `Task.num_outputs`)."""
        return 1

    def features(
        self,
        examples: Sequence[ChoiceExample],
        tokenizer: Tokenizer,
        *,
        max_length: int,
        segments: bool,
        training: bool,
    ) -> Features:
        """Lay out each option as a sequence, all options of a question as a unit (see `Task.features`).

        Without a context the question is the first text and the option the second; without both the option is a single
        text.
        """
        chosen = np.arange(len(examples), dtype=np.int64)
        if training:
            chosen = learnable(examples)
        kept = [examples[number] for number in chosen.tolist()]
        for example in kept:
            _check(example)
        firsts, seconds = [], []
        for example in kept:
            what, *options = texts_of(example)
            firsts.append(what)
            seconds += options
        counts = np.array([len(example.options) for example in kept], dtype=np.int64)
        stream = StreamEncoder(tokenizer).encode(firsts + seconds)
        ranges = ranges_of(stream.lengths)
        units = np.repeat(np.arange(len(kept)), counts)
        pairs = np.array([what != "" for what in firsts], dtype=bool)[units]
        first, second = ranges.pick(units), ranges.pick(np.arange(len(kept), len(ranges.starts)))
        # Keep the end, which holds the option.
        short = Ranges(np.maximum(second.starts, second.ends - self._option_room(tokenizer, max_length)), second.ends)
        available = np.where(pairs, room(tokenizer, max_length, pair=True, needed=2), short.lengths)
        context = first.first(available - short.lengths)
        is_cut = (short.lengths < second.lengths) | (context.lengths < first.lengths)
        # A single text takes the place of a pair's first.
        alone = Ranges(np.where(pairs, context.starts, short.starts), np.where(pairs, context.ends, short.ends))
        laid = lay_out(stream.ids, alone, short, tokenizer, segments=segments, pairs=pairs)
        return Features(
            ids=laid.ids,
            segment_ids=laid.segment_ids,
            cu_seqlens=laid.cu_seqlens,
            units=units,
            examples=chosen,
            labels=np.array([example.label for example in kept], dtype=np.int64) if training else None,
            num_cut=len(np.unique(units[is_cut])),
        )

    def _option_room(self, tokenizer: Tokenizer, max_length: int) -> int:
        # Keep at least one token of the context.
        return min(self.max_option_length, room(tokenizer, max_length, pair=True, needed=2) - 1)

    def loss(self, scores: Tensor, batch: FeatureBatch) -> tuple[Tensor, int]:
        """Return the cross entropy over each question's options, summed, and the number of questions."""
        assert batch.labels is not None
        counts = torch.bincount(batch.units, minlength=len(batch.unit_numbers))
        first = counts.cumsum(0) - counts
        option = torch.arange(len(batch.units), device=batch.units.device) - first[batch.units]
        # Missing options get probability 0.
        table = scores.new_full((len(counts), int(counts.max())), -torch.inf)
        table = table.index_put((batch.units, option), scores.squeeze(1))
        return F.cross_entropy(table, batch.labels, reduction="sum"), len(batch.unit_numbers)

    def by_unit(self, scores: Tensor, batch: FeatureBatch) -> list[Scores]:
        """Split scores into one array (options,) per unit."""
        counts = torch.bincount(batch.units, minlength=len(batch.unit_numbers)).tolist()
        return [scores[:, 0] for scores in rows(scores, counts)]

    def predictions(
        self,
        scores: Sequence[Scores],
        features: Features,
        examples: Sequence[ChoiceExample],
        tokenizer: Tokenizer,
    ) -> list[Prediction]:
        """Predict the index of the most probable option; details hold its text and all probabilities."""
        if len(scores) != len(examples):
            raise ValueError(f"{len(scores)} scores for {len(examples)} questions: predict with features for scoring")
        found = []
        for example, its_scores in zip(examples, scores, strict=True):
            probabilities = softmax(its_scores).tolist()
            best = int(np.argmax(probabilities))
            found.append(
                Prediction(
                    key=example.key,
                    value=best,
                    score=probabilities[best],
                    details={"option": example.options[best], "probabilities": probabilities},
                )
            )
        return found

    def measure(self, predictions: Sequence[Prediction], examples: Sequence[ChoiceExample]) -> dict[str, float]:
        """Return the accuracy (see `Task.measure`)."""
        require_labels(examples)
        gold = [str(example.label) for example in examples]
        return {"accuracy": accuracy(gold, [str(prediction.value) for prediction in predictions])}

    def check(self, examples: Sequence[ChoiceExample]) -> None:
        """Raise on questions with fewer than two options, or a label out of range (see `Task.check`)."""
        for example in examples:
            _check(example)


def texts_of(example: ChoiceExample) -> list[str]:
    """Return the first text that all sequences of a question share, then each option's second text."""
    if not example.context:
        return [example.question, *example.options]
    return [example.context, *(_joined(example.question, option) for option in example.options)]


def _joined(question: str, option: str) -> str:
    if not question:
        return option
    filled, blanks = _BLANK.subn(lambda _: option, question)
    return filled if blanks else f"{question} {option}"


def _check(example: ChoiceExample) -> None:
    if len(example.options) < 2:
        raise DataError(f"question {example.key}: it has {len(example.options)} options", allowed="two or more")
    if example.label is not None and not 0 <= example.label < len(example.options):
        raise DataError(
            f"question {example.key}: its label is {example.label}",
            allowed=f"0 to {len(example.options) - 1}, the number of an option",
        )
