"""Reranking: the relevance of a document to a query, a score in [0, 1] for a pair of texts.

The model is a CrossEncoder of sentence-transformers: a class for sequences with one score, and a sigmoid.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Annotated, ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import DTypeLike
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import TextExample
from maskwright.finetuning.features import FeatureBatch
from maskwright.finetuning.metrics.scores import ranking_scores
from maskwright.finetuning.tasks.base import AS_NAMES, NOT_EMPTY, Prediction, Scores, constant_on, sigmoid
from maskwright.finetuning.tasks.texts import TextTask
from maskwright.fitting.rules import Choice, Rule, apply_rules, round_digits

RELEVANT = 0.5
"""Least label of a relevant document."""


@final
class Reranking(TextTask):
    """The relevance of a document to a query, trained with binary cross entropy.

    The loss is that of sentence-transformers' CrossEncoders (BinaryCrossEntropyLoss). Queries without a relevant
    document, or without another one, cannot be scored and are left out of the metrics.

    Attributes:
        metrics: Reported means over the queries, the main one first: "ndcg@10", "mrr@10", "map".
        positive_weight: Weight of the relevant pairs in the loss.
    """

    target_type: ClassVar[DTypeLike] = np.float32
    kind: Literal["reranking"] = "reranking"
    metrics: Annotated[tuple[Literal["ndcg@10", "mrr@10", "map"], ...], AS_NAMES, NOT_EMPTY] = (
        "ndcg@10",
        "mrr@10",
        "map",
    )
    positive_weight: Annotated[float, Field(gt=0)] = 1.0

    def fitted(self, examples: Sequence[TextExample], fixed: Collection[str]) -> tuple[Self, tuple[Choice, ...]]:
        """Weight relevant pairs by the number of others for each (sentence-transformers: training_gooaq_bce.py)."""
        relevant, count = sum(example.label >= RELEVANT for example in examples), len(examples)
        weight = round_digits((count - relevant) / relevant, 2) if 0 < relevant < count else 1.0
        reason = f"{relevant:,} of {count:,} training pairs are relevant"
        return apply_rules(self, [Rule("positive_weight", weight, reason)], None, fixed, prefix="task.")

    def target(self, example: TextExample) -> float:
        if not 0 <= example.label <= 1:
            raise DataError(
                f"{example.location}: the relevance is {example.label}",
                allowed="a number from 0 to 1, where the document is relevant from 0.5 on",
            )
        return float(example.label)

    def loss(self, scores: Tensor, labels: Tensor, batch: FeatureBatch) -> Tensor:
        weight = constant_on(scores.device, (self.positive_weight,))
        return F.binary_cross_entropy_with_logits(scores.squeeze(1), labels, pos_weight=weight, reduction="sum")

    def activate(self, scores: Scores) -> Scores:
        return sigmoid(scores)

    def measure(self, predictions: Sequence[Prediction], examples: Sequence[TextExample]) -> dict[str, float]:
        by_query = defaultdict[str, tuple[list[bool], list[float]]](lambda: ([], []))
        for prediction, example in zip(predictions, examples, strict=True):
            relevant, predicted = by_query[example.texts[0]]
            relevant.append(example.label >= RELEVANT)
            predicted.append(prediction.value)
        scores = ranking_scores([*by_query.values()])
        return {name: scores[name] for name in self.metrics}

    def check_rankings(self, examples: Sequence[TextExample], *, training: bool) -> None:
        """Raise if no query has both a relevant and another document; to train, they may be of different queries."""
        labels = defaultdict[str, set[bool]](set)
        for example in examples:
            labels["" if training else example.texts[0]].add(example.label >= RELEVANT)
        if not any(len(each) == 2 for each in labels.values()):
            raise DataError(
                "all pairs are relevant, or none is, so that there is nothing to learn"
                if training
                else "no query has both a relevant document and another one, so that there is nothing to rank",
                allowed="several documents of a query, labeled 1 and 0; or triplets; to train, also relevant pairs",
                hint='To train on the relevant pairs of a file alone: `--read "only=[[COLUMN, VALUE]]"`.',
            )
