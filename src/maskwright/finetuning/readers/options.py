"""Options of reading a labeled file: format and columns, from the user or from the training file.

Guesses depend on what a file happens to contain. How the training file was read is therefore stored, for the
development and test files, and beside the model for later files (`to_keep`, `with_defaults`).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError

from maskwright.core.errors import RecipeError
from maskwright.core.spec import Spec, override, parse_overrides


def as_name(value: Any) -> Any:
    """Return a number or truth value, which YAML makes of `0` and `true`, as text, in a list too; else the value."""
    if isinstance(value, list | tuple):
        return tuple(map(as_name, value))
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def name_list(value: Any) -> Any:
    """Return names as a tuple, from a list or from a text with commas ("neg, pos"); anything else unchanged."""
    value = as_name(value)
    if isinstance(value, str):
        return tuple(stripped for part in value.split(",") if (stripped := part.strip()))
    return value


def as_names(columns: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the names as a tuple, whether one or several were given."""
    return (columns,) if isinstance(columns, str) else columns


def _delimiter(value: str) -> str:
    value = "\t" if value == r"\t" else value
    if len(value) != 1 or value in '"\r\n':
        raise PydanticCustomError("delimiter", "write one character other than a double quote or line break")
    return value


Kind = Literal[
    "classification",
    "regression",
    "multi_label",
    "reranking",
    "tagging",
    "question_answering",
    "multiple_choice",
    "embedding",
]
"""Kinds of tasks, as `Task.kind` names them; "embedding" has no `Task`: sentence-transformers trains it."""

TEXT_KINDS: tuple[Kind, ...] = ("classification", "regression", "multi_label", "reranking")
"""Kinds of tasks whose inputs are single texts or pairs."""

Format = Literal["csv", "tsv", "json", "parquet", "text", "conll"]
"""Format of a file. "json": JSON or JSON Lines; the nesting of SQuAD, RACE and C3 is recognized. "text": one text
per line; "conll": one word per line."""

Columns = Annotated[tuple[str, ...], BeforeValidator(lambda value: as_names(as_name(value)))]
"""A column's name, or several of which the first that the file has is used. Columns are also called "1", "2" and so on;
"-1" is the last one."""

Names = Annotated[tuple[str, ...], BeforeValidator(name_list)]
Pairs = Annotated[tuple[tuple[str, str], ...], BeforeValidator(as_name)]


class ReadOptions(Spec):
    """Format and columns of a labeled file. Unset fields are guessed, and every guess is in the file's notes.

    Attributes:
        format: None: by suffix and content.
        text: Column of the text; of the words (tagging), the question (question answering), the context (choice).
        text2: Column of the second text; of the context (question answering), the question (choice).
        negative: Column of a text that is not similar to the first one (embedding), or not relevant (reranking).
        choices: Columns of the options, one each, or the one column that holds a list (choice).
        label: Column of the label, the tags, the answers, the right option.
        first_option: Number of the first option, where the right ones are numbered (choice); None: 0 if it occurs.
        label_columns: Multi-label: columns of 0 and 1, named as the classes, in place of `label`.
        label_names: (as written, as wanted) for labels that are to be renamed.
        known_labels: All labels; a row with another is bad. Empty: any.
        dropped_labels: Rows with these labels are left out by rule, e.g. "-" where the annotators did not agree.
        only: (column, value): rows that have the column with another value are left out by rule.
        labels: "needed": a row without label is bad. "if_there": it is kept without one. "ignored": labels are not
            read, as for prediction. Follows from what the file is for.
        quoting: "csv": double quotes may enclose fields; "none": a double quote is an ordinary character.
        delimiter: One character. A space separates only the first column from the rest of the line (TREC).
        encoding: As Python names it; None: UTF-8, or UTF-16 with a byte order mark.
        word_ending: "segmentation_digit": each word ends in a digit that is not part of it ("科0"), as in Weibo NER.
    """

    format: Format | None = None
    text: Columns = ()
    text2: Columns = ()
    negative: Columns = ()
    choices: Names = ()
    label: Columns = ()
    first_option: Literal[0, 1] | None = None
    label_columns: Names = ()
    label_names: Pairs = ()
    known_labels: Names = ()
    dropped_labels: Names = ()
    only: Pairs = ()
    labels: Literal["needed", "if_there", "ignored"] = "needed"
    quoting: Literal["csv", "none"] | None = None
    delimiter: Annotated[str, AfterValidator(_delimiter)] | None = None
    encoding: str | None = None
    word_ending: Literal["as_written", "segmentation_digit"] = "as_written"


ReadAs = Mapping[str, Any]
"""Fields of `ReadOptions` with the values that a file was read with."""

_OF_ONE_FILE = {"known_labels", "labels", "encoding"}
"""Fields that may differ between files of the same data."""


def to_keep(options: ReadOptions, shown: ReadAs) -> dict[str, Any]:
    """Return how files like one that was read are to be read: the options given, else what the file showed."""
    requested = options.model_dump(exclude_defaults=True)
    return options.replace(**{**shown, **requested}).model_dump(exclude_defaults=True, exclude=_OF_ONE_FILE)


def with_defaults(options: ReadOptions, read_as: ReadAs) -> ReadOptions:
    """Return options with open fields filled in from how another file was read."""
    settled = set(options.model_dump(exclude_defaults=True))
    if options.text:
        settled |= {"text2", "negative"}
    if options.label or options.label_columns:
        settled |= {"label", "label_columns"}
    return options.replace(**{name: value for name, value in read_as.items() if name not in settled})


def with_overrides(options: ReadOptions, columns: Mapping[str, str | None], read: Sequence[str]) -> ReadOptions:
    """Return options with the user's columns by role ("text", "text2", "label"; None leaves them) and "field=value"."""
    changes: list[tuple[str, Any]] = [(role, name) for role, name in columns.items() if name is not None]
    for written, (name, value) in zip(read, parse_overrides(read), strict=True):
        if name == "labels":
            raise RecipeError(
                "--read labels=... cannot be set: whether rows need a label follows from what the file is for"
            )
        verbatim = written.partition("=")[2]  # YAML would drop a space or tab
        changes.append((name, verbatim if name == "delimiter" and len(verbatim) == 1 else value))
    return override(options, changes)
