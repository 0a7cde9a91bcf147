"""The rows: what each measures, and about how long it takes on two quiet cores."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.report import Report
    from benchmarks.settings import Settings


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        title: Heading of its tables.
        minutes: Rough time on two quiet cores, reckoned, not measured.
    """

    title: str
    minutes: float


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        "natural": Row("Training step, fp32, dropout 0, documents of natural length", 22),
        "dropout": Row("Training step, fp32, dropout 0.1, documents of natural length", 7),
        "blocks": Row("Training step, fp32, dropout 0.1, whole blocks", 5),
        "bf16": Row("Training step, bf16, dropout 0, documents of natural length", 7),
        "gpu": Row("Training step on a GPU, bf16, dropout 0.1, whole blocks", 6),
        "electra": Row("ELECTRA's joint step, fp32, dropout 0.1", 3),
        "utilisation": Row("Share of the machine's matrix-product peak, fp32, dropout 0", 4),
        "levers": Row("What each lever gives: the step without it, fp32, dropout 0.1", 6),
        "masks": Row("From text to masked batches, and waiting for them", 2),
        "corpus": Row("From a corpus to token shards", 7),
        "inference": Row("Filling masks and making vectors, base", 9),
        "int8": Row("ALBERT in int8 against BERT in int8", 4),
        "finetuning": Row("Fine-tuning and scoring, fp32, dropout 0.1", 12),
        "finetuning_scores": Row("Scores of fine-tuned models beside the Trainer's", 15),
        "memory": Row("Peak memory of a training step", 10),
        "trajectory": Row("Two hundred steps, loss by loss", 5),
        "scaling": Row("How cost grows", 6),
    }
)


def load(name: str) -> "Callable[[Settings], Report]":
    """Import a row and return its function."""
    run: Callable[[Settings], Report] = importlib.import_module(f"benchmarks.{name}").run
    return run
