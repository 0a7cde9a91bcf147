"""Measures, as their sources publish them. Pure functions of what is right and what was predicted. One line each."""

from maskwright.finetuning.metrics.classification import accuracy, binary_f1, macro_f1, matthews
from maskwright.finetuning.metrics.cmrc import cmrc2018
from maskwright.finetuning.metrics.correlation import mean_absolute_error, pearson, r_squared, spearman
from maskwright.finetuning.metrics.entities import Entity, TagScheme, entities_of, entity_scores, scheme_of
from maskwright.finetuning.metrics.multi_label import multi_label_scores
from maskwright.finetuning.metrics.squad import squad, squad_v2

__all__ = [
    "Entity",
    "TagScheme",
    "accuracy",
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
    "spearman",
    "squad",
    "squad_v2",
]
