"""Whether texts come alone or in pairs, as those did that a model learnt from: it would answer the others too."""

from collections.abc import Mapping, Sequence
from typing import Literal

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import Example, TextExample
from maskwright.finetuning.readers import ReadAs

Texts = Literal["single texts", "pairs of texts"]

FOR_INPUTS: Mapping[Texts, str] = {
    "pairs of texts": 'Give a file with two columns, `--text COLUMN --text2 COLUMN`; in Python, ("one", "the other").',
    "single texts": 'Give them one by one, ["one", "the other"].',
}
FOR_FILES: Mapping[Texts, str] = {
    "pairs of texts": "Name both columns, `--text COLUMN --text2 COLUMN`.",
    "single texts": "Name the column of the text, `--text COLUMN`.",
}
FOR_BENCHMARKS: Mapping[Texts, str] = {
    "pairs of texts": "Choose a benchmark of pairs.",
    "single texts": "Choose a benchmark of single texts.",
}


def refuse_other_texts(examples: Sequence[Example], trained: ReadAs, name: str, todo: Mapping[Texts, str]) -> None:
    """Refuse single texts where a model learnt from pairs, and pairs where it learnt from single texts.

    Args:
        examples: What it is to read.
        trained: How its training file was read; if it does not say, nothing is refused.
        name: What they are or where they come from, for the message.
        todo: What to do, by what the model learnt from.

    Raises:
        DataError: If one does not fit.
    """
    if not trained.get("text"):
        return
    learnt: Texts = "pairs of texts" if trained.get("text2") else "single texts"
    for example in examples:
        if isinstance(example, TextExample) and (found := _found(example)) != learnt:
            raise DataError(f"{name}: {found}, and this model learnt from {learnt}", todo=todo[learnt])


def _found(example: TextExample) -> Texts:
    return "single texts" if len(example.texts) == 1 else "pairs of texts"
