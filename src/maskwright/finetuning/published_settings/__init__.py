"""The published fine-tuning settings of systems: rows of data, each with its source.

A row holds what its source says and nothing else; what it leaves open is the benchmark's (`benchmark_table`: BERT's,
where BERT was measured on it), and then BERT's. Numbers of steps are told as passes, so that they mean the same for a
part of the data: steps x batch / training examples.
"""

from collections.abc import Mapping
from types import MappingProxyType

from maskwright.finetuning.published_settings import (
    albert,
    bert,
    distilbert,
    electra,
    ernie,
    macbert,
    roberta,
    spanbert,
)
from maskwright.finetuning.published_settings.row import Published

__all__ = ["PUBLISHED", "RATES_AT_WIDTH_768", "SYSTEMS", "Published"]

PUBLISHED: tuple[Published, ...] = (
    *bert.ROWS,
    *roberta.ROWS,
    *albert.ROWS,
    *electra.ROWS,
    *spanbert.ROWS,
    *macbert.ROWS,
    *ernie.ROWS,
    *distilbert.ROWS,
)
"""All rows."""

RATES_AT_WIDTH_768: Mapping[str, float] = MappingProxyType({"bert": 5e-5, "electra": 1e-4})
"""From where the rate of narrower models rises in proportion to 1 / width; BERT's for systems that have none.

BERT: the top of its grid (Devlin et al. 2019, A.3); at width 128 this is 3e-4, the top of the grid of the small models
(google-research/bert README; Turc et al. 2019). ELECTRA: its base rate; at width 256 this is 3e-4, its small model's.
"""

SYSTEMS: Mapping[str, str] = MappingProxyType(
    {
        "bert": "bert",
        "pmi": "bert",
        "roberta": "roberta",
        "albert": "albert",
        "electra": "electra",
        "spanbert": "spanbert",
        "bert-wwm": "bert-wwm",
        # The Chinese RoBERTa-wwm is a BERT with another training, and fine-tuned as one.
        "roberta-wwm": "bert-wwm",
        "macbert": "macbert",
        "ernie": "ernie",
        "distilbert": "distilbert",
        "distilroberta": "distilbert",
    }
)
"""System of a recipe's name (before the slash), and whose rows count for it."""
