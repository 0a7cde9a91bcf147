"""Whether texts come alone or in pairs, as those did that a model learnt from: it would answer the others too."""

from collections.abc import Sequence

from maskwright.core.errors import DataError
from maskwright.evaluation.examples import Example, TextExample
from maskwright.evaluation.readers import ReadAs


def refuse_other_inputs(example: Example, trained: ReadAs, place: str) -> None:
    """Refuse one text where a model learnt from pairs, and a pair where it learnt from single texts.

    Args:
        example: What it is to read.
        trained: How its training file was read; if it does not say, nothing is refused.
        place: Where the example is, for the message.

    Raises:
        DataError: If it does not fit.
    """
    match _other_than_learnt([example], trained):
        case "single":
            raise DataError(
                f"{place} is one text, and this model learnt from pairs of texts",
                todo='Give a file with two columns, `--text COLUMN --text2 COLUMN`; in Python, ("one", "the other").',
            )
        case "pair":
            raise DataError(
                f"{place} is a pair of texts, and this model learnt from single texts",
                todo='Give them one by one, ["one", "the other"].',
            )


def refuse_other_files(examples: Sequence[Example], trained: ReadAs, name: str) -> None:
    """Refuse a file of single texts where a model learnt from pairs, and the other way round.

    Args:
        examples: What was read of it.
        trained: How the training file was read; if it does not say, nothing is refused.
        name: The file.

    Raises:
        DataError: If it does not fit.
    """
    match _other_than_learnt(examples, trained):
        case "single":
            raise DataError(
                f"{name} is read as single texts, and this model learnt from pairs of texts",
                todo="Name both columns, `--text COLUMN --text2 COLUMN`.",
            )
        case "pair":
            raise DataError(
                f"{name} is read as pairs of texts, and this model learnt from single texts",
                todo="Name the column of the text, `--text COLUMN`.",
            )


def _other_than_learnt(examples: Sequence[Example], trained: ReadAs) -> str:
    """Return what the texts are, "single" or "pair", if that is not what the model learnt from; else nothing."""
    learnt = "pair" if trained.get("text2") else "single"
    for example in examples if trained.get("text") else ():
        if isinstance(example, TextExample) and (found := ("single", "pair")[len(example.texts) == 2]) != learnt:
            return found
    return ""
