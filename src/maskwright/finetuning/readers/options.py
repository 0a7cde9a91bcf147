"""What a labelled file is read as: its kind of task, its format, and which of its columns mean what."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator

from maskwright.finetuning.readers.name_lists import as_name, name_list, name_pairs

TextKind = Literal["classification", "regression", "multi_label"]
Kind = Literal["classification", "regression", "multi_label", "tagging", "question_answering", "multiple_choice"]
"""Kinds of tasks, as `Task.kind` names them."""

Format = Literal["csv", "tsv", "jsonl", "json", "parquet", "text", "conll", "squad", "race", "dream"]
"""How a file is written. "json": a list of records; "text": one text a line; "conll": one word a line;
"race": RACE's records, as a folder of them or one a line; "dream": DREAM's and C3's lists."""

Columns = Annotated[str | tuple[str, ...], BeforeValidator(as_name)]
"""A column's name, or several of which the first that the file has is taken. A file without header has columns that
are called "1", "2" and so on; "-1" is the last one of CoNLL columns."""

Names = Annotated[tuple[str, ...], BeforeValidator(name_list)]
Pairs = Annotated[tuple[tuple[str, str], ...], BeforeValidator(name_pairs)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read a labelled file. What is left open is guessed, and every guess is said in the file's notes.

    Attributes:
        format: None: by suffix and content.
        text: Column of the text; of the words (tagging), the question (question answering), the context (choice).
        text2: Column of the second text; of the context (question answering), the question (choice).
        choices: Columns of the options, one each, or the one column that holds a list (choice).
        label: Column of the label, the tags, the answers, the right option.
        first_option: What the right options are numbered from, where they are numbered (choice).
        key: Column of the example's id; else `index`, `idx` or `id` where its values differ, else the line number.
        label_columns: Multi-label: columns of 0 and 1, named as the classes, in place of `label`.
        label_separator: Multi-label: what stands between the classes in one column of text.
        label_names: (as written, as wanted) for labels that are to be called otherwise.
        known_labels: All labels there are; a row with another is bad. Empty: any.
        dropped_labels: Rows with these labels are left out by rule, e.g. "-" where the annotators did not agree.
        only: (column, value): rows that have the column with another value are left out by rule.
        labels: "needed": a row without label is bad. "if_there": it is kept without one. "ignored": labels are not
            read, as for prediction.
        header: Whether the first line names the columns.
        quoting: "csv": texts may stand in double quotes; "none": a double quote is a character like any other.
        delimiter: One character.
        encoding: As Python names it.
        word_ending: "segmentation_digit": every word ends in a digit that is no part of it ("科0"), as in Weibo NER.
        bad_rows: Whether a bad row is left out and counted, or the whole file is refused because of it.
    """

    format: Format | None = None
    text: Columns = ()
    text2: Columns = ()
    choices: Annotated[Columns, BeforeValidator(name_list)] = ()
    label: Columns = ()
    first_option: Literal[0, 1] | None = None
    key: Columns = ()
    label_columns: Names = ()
    label_separator: str | None = None
    label_names: Pairs = ()
    known_labels: Names = ()
    dropped_labels: Names = ()
    only: Pairs = ()
    labels: Literal["needed", "if_there", "ignored"] = "needed"
    header: Literal["first_line", "none"] | None = None
    quoting: Literal["csv", "none"] | None = None
    delimiter: str | None = None
    encoding: str | None = None
    word_ending: Literal["as_written", "segmentation_digit"] = "as_written"
    bad_rows: Literal["skip", "refuse"] = "skip"

    def named_columns(self) -> tuple[str, ...]:
        """Return all column names given, in no meaningful order."""
        named = (self.text, self.text2, self.choices, self.label, self.key)
        return (*(name for columns in named for name in as_names(columns)), *self.label_columns)


def as_names(columns: Columns) -> tuple[str, ...]:
    """Return the names as a tuple, whether one or several were given."""
    return (columns,) if isinstance(columns, str) else columns
