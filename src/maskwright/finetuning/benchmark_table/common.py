"""What rows of several groups share: labels, names of files, metrics, settings."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from maskwright.finetuning.benchmark import Files, Split
from maskwright.finetuning.readers import ReadOptions

SplitFiles = dict[Split, tuple[Files, ...]]

BINARY = ("0", "1")
# The order of google-research/bert run_classifier.py, MnliProcessor and XnliProcessor.
NLI = ("contradiction", "entailment", "neutral")
ENTITIES = ("f1", "precision", "recall", "accuracy")
STS_RANGE = MappingProxyType({"bounds": (0.0, 5.0)})
BERT: Mapping[str, Any] = MappingProxyType({"epochs": 3.0, "learning_rate": 3e-5, "batch_size": 32, "max_length": 128})

TSV_FILES: SplitFiles = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}


def unquoted_tsv(**columns: Any) -> ReadOptions:
    """Return how files are read in which quotes are characters like any other: in GLUE's, hundreds are never closed."""
    return ReadOptions(format="tsv", quoting="none", **columns)
