"""Metrics as their sources publish them: pure functions of gold and predicted values."""

from maskwright.finetuning.metrics.answers import (
    BestThreshold,
    best_threshold,
    cmrc2018,
    score_questions,
    squad,
    squad_v2,
)
from maskwright.finetuning.metrics.entities import Entity, TagScheme, entities_of, entity_scores, scheme_of
from maskwright.finetuning.metrics.scores import (
    accuracy,
    binary_f1,
    macro_f1,
    matthews,
    mean_absolute_error,
    multi_label_scores,
    pearson,
    r_squared,
    spearman,
)

__all__ = [
    "BestThreshold",
    "Entity",
    "TagScheme",
    "accuracy",
    "best_threshold",
    "binary_f1",
    "cmrc2018",
    "entities_of",
    "entity_scores",
    "macro_f1",
    "matthews",
    "mean_absolute_error",
    "multi_label_scores",
    "pearson",
    "r_squared",
    "scheme_of",
    "score_questions",
    "spearman",
    "squad",
    "squad_v2",
]
