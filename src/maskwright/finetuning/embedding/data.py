"""Data of sentence embeddings: kinds of rows, and hyperparameters for each kind."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, PositiveInt

from maskwright.core.errors import DataError
from maskwright.core.spec import Spec
from maskwright.core.text.amounts import pluralize
from maskwright.finetuning.examples import ExampleFile, TextExample
from maskwright.finetuning.hyperparameters import Hyperparameters, Positive, Rate

Texts = ExampleFile[TextExample]
TASK: Final = "embedding"
Rows = Literal["scored pairs", "pairs", "triplets", "texts"]
"""Kinds of rows of a file."""


class EmbeddingSettings(Spec):
    """Hyperparameters of sentence embeddings.

    Defaults are those of sentence-transformers' examples, by what the rows are (`DEFAULTS`); 5e-5 is the rate of its
    training arguments.

    Attributes:
        epochs: Number of epochs; may be a fraction.
        batch_size: Rows per step; except for scored pairs, the other texts of a batch are the negatives.
        learning_rate: Peak learning rate.
        warmup_share: Share of steps for warmup; the rate then falls linearly to 0.
        weight_decay: Decoupled weight decay, of all weights but biases and LayerNorm.
        dropout: In the encoder.
        max_length: Maximum tokens of a text in training, special tokens included; None or more: the model's.
        dimensions: Sizes to which vectors may be truncated later: the loss is the sum over these and the whole vectors
            (Matryoshka representation learning, Kusupati et al. 2022).
    """

    synonyms: ClassVar[Mapping[str, str]] = {**Hyperparameters.synonyms, "hidden_dropout": "dropout", "seed": "--seed"}

    epochs: Positive = 1.0
    batch_size: PositiveInt = 128
    learning_rate: Positive = 5e-5
    warmup_share: Rate = 0.1
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    dropout: Rate = 0.1
    max_length: Annotated[int, Field(ge=8)] | None = None
    dimensions: tuple[PositiveInt, ...] = ()


DEFAULTS: Mapping[Rows, EmbeddingSettings] = {
    "scored pairs": EmbeddingSettings(epochs=4.0, batch_size=16),  # training/sts/training_stsbenchmark.py
    "pairs": EmbeddingSettings(),  # training/nli/training_nli_v2.py
    "triplets": EmbeddingSettings(),
    "texts": EmbeddingSettings(max_length=32),  # unsupervised_learning/SimCSE/train_stsb_simcse.py
}
"""By what the rows are; the files are sentence-transformers' examples."""


def check_rows(file: Texts, *, training: bool = False) -> None:
    """Raise DataError on rows without any difference to learn or measure."""
    scores = {example.label for example in file.examples}
    if rows_of(file) == "scored pairs" and len(scores) < 2:
        raise DataError(
            f"{file.name}: the similarity of {pluralize(len(file.examples), 'pair')} is always {scores.pop()}",
            allowed="at least two different similarities, since only their order counts",
            hint="Check that --label is the right column, or name another file.",
        )
    if training and len({example.texts for example in file.examples}) < 2:
        raise DataError(
            f"{file.name} has {pluralize(len(file.examples), 'row')} of the same texts",
            allowed="at least two different rows, since the other texts of a batch are the negatives",
            hint="Give more rows.",
        )


def rows_of(file: Texts) -> Rows:
    if any(example.label is not None for example in file.examples):
        return "scored pairs"
    by_columns: tuple[Rows, ...] = ("texts", "pairs", "triplets")
    return by_columns[len(file.examples[0].texts) - 1]
