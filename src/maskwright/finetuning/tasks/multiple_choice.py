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
from dataclasses import replace
from typing import ClassVar, Literal, final

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.ranges import Ranges
from maskwright.core.types import HeadKind
from maskwright.finetuning.examples import ChoiceExample
from maskwright.finetuning.features import FeatureBatch, Features, Layout, encode_distinct, lay_out
from maskwright.finetuning.metrics.scores import accuracy
from maskwright.finetuning.tasks.base import Prediction, Scores, Task, softmax

_BLANK = re.compile(r"(?<![^\W_])_+(?![^\W_])")


@final
class MultipleChoice(Task):
    """The right one of several options. The number of options may differ between questions.

    `max_option_length` is the maximum number of tokens of question and option together; the first ones are truncated.
    128 in ALBERT (race_utils.py) and RoBERTa (README.race.md).
    """

    head: ClassVar[HeadKind] = "choice"
    kind: Literal["multiple_choice"] = "multiple_choice"
    max_option_length: PositiveInt = 128

    def features(self, examples: Sequence[ChoiceExample], layout: Layout, *, training: bool) -> Features:
        """Lay out each option as a sequence, all options of a question as a unit (see `Task.features`).

        Without a context the question is the first text and the option the second; without both the option is a single
        text.
        """
        firsts, seconds = [], []
        for example in examples:
            what, *options = texts_of(example)
            firsts.append(what)
            seconds += options
        counts = np.array([len(example.options) for example in examples], dtype=np.int64)
        ids, ranges = encode_distinct(firsts + seconds, layout.tokenizer)
        units = np.repeat(np.arange(len(examples)), counts)
        pairs = np.array([what != "" for what in firsts], dtype=bool)[units]
        first, second = ranges.pick(units), ranges.pick(np.arange(len(examples), len(ranges.starts)))
        most = layout.text_tokens(pair=True)
        # Keep the end, which holds the option, and at least one token of the context.
        longest_option = min(self.max_option_length, most - 1)
        short = Ranges(np.maximum(second.starts, second.ends - longest_option), second.ends)
        available = np.where(pairs, most, short.lengths)
        context = first.first(available - short.lengths)
        is_truncated = (short.lengths < second.lengths) | (context.lengths < first.lengths)
        # A single text takes the place of a pair's first.
        laid = lay_out(ids, Ranges.where(pairs, context, short), short, layout, pairs)
        return replace(
            laid,
            units=units,
            examples=np.arange(len(examples), dtype=np.int64),
            labels=np.array([example.label for example in examples], dtype=np.int64) if training else None,
            truncated=np.unique(units[is_truncated]),
        )

    def loss(self, scores: Tensor, labels: Tensor, batch: FeatureBatch) -> Tensor:
        """Return the cross entropy over each question's options, summed."""
        counts = torch.bincount(batch.units)
        first = counts.cumsum(0) - counts
        option = torch.arange(len(batch.units), device=batch.units.device) - first[batch.units]
        # Missing options get probability 0.
        table = scores.new_full((len(counts), int(counts.max())), -torch.inf)
        table = table.index_put((batch.units, option), scores.squeeze(1))
        return F.cross_entropy(table, labels, reduction="sum")

    def decode(self, scores: Scores, features: Features, examples: Sequence[ChoiceExample]) -> list[Prediction]:
        """Predict the index of the most probable option; details hold its text and all probabilities."""
        predictions = []
        of_questions = np.split(scores[:, 0], np.flatnonzero(np.diff(features.units)) + 1)
        for example, option_scores in zip(examples, of_questions, strict=True):
            probabilities = softmax(option_scores).tolist()
            best = int(np.argmax(probabilities))
            details = {"option": example.options[best], "probabilities": probabilities}
            predictions.append(Prediction(key=example.key, value=best, score=probabilities[best], details=details))
        return predictions

    def measure(self, predictions: Sequence[Prediction], examples: Sequence[ChoiceExample]) -> dict[str, float]:
        gold = [str(example.label) for example in examples]
        return {"accuracy": accuracy(gold, [str(prediction.value) for prediction in predictions])}


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
