"""Labelled examples as the readers give them and the tasks take them: plain text, no tokens yet."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Label = str | float | tuple[str, ...]
"""The name of a class, a number (regression), or the names of all classes that hold (multi-label)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextExample:
    """One text, or a pair.

    Attributes:
        key: Its name in the file (an id where the file has one, else the number of its line or record).
        texts: One text or two.
        label: None where the file has none (test sets).
    """

    key: str
    texts: tuple[str, ...]
    label: Label | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedExample:
    """One sentence of words (or of characters), a tag each.

    Attributes:
        key: The number of its first line, or an id.
        words: As the file cuts them.
        tags: As the file writes them, e.g. "B-PER"; None where the file has none.
        text: The running text that the words were cut from, for places in it; None where there were only words.
    """

    key: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    text: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A right answer.

    Attributes:
        text: As the file writes it.
        start: Offset of its first character in the context, in Python's characters; None where the file's offset is
            wrong and the text stands nowhere in the context: it can be scored, but not trained on.
    """

    text: str
    start: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionExample:
    """A question about a text that holds its answer, or does not.

    Attributes:
        key: The question's id.
        question: The question.
        context: The text.
        answers: Right answers; empty where the question cannot be answered from the text, and in test files.
        is_impossible: Whether the file says that the text does not answer it.
    """

    key: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    is_impossible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceExample:
    """A question with options, of which one is right.

    Attributes:
        key: The question's id.
        context: The text it is about; may be empty.
        question: The question, or the beginning that the options end (SWAG); may be empty.
        options: Two or more. Examples of one file may have different numbers of them.
        label: Number of the right option, from 0; None in test files.
    """

    key: str
    context: str
    question: str
    options: tuple[str, ...]
    label: int | None


Example = TextExample | TaggedExample | QuestionExample | ChoiceExample
E = TypeVar("E", TextExample, TaggedExample, QuestionExample, ChoiceExample)


def has_label(example: Example) -> bool:
    """Whether an example says what is right; of a question, also that nothing is."""
    match example:
        case TextExample() | ChoiceExample():
            return example.label is not None
        case TaggedExample():
            return example.tags is not None
        case QuestionExample():
            return bool(example.answers) or example.is_impossible
    raise TypeError(f"{type(example).__name__} is no example")


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that was left out.

    Attributes:
        place: File and line, or file and record.
        reason: What is wrong with it.
    """

    place: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleFile(Generic[E]):
    """What one labelled file holds.

    Attributes:
        name: The file or folder, for messages.
        examples: In the order of the file.
        skipped: What was left out, and why.
        notes: What was guessed about the file, to be said aloud ("column 'satz' is taken as the text").
        read_as: What was guessed, as fields of `readers.ReadOptions`: other files of the same data are read alike.
        names_among_rows: What the first line holds, where it was read as an example, but must be names of columns.
    """

    name: str
    examples: tuple[E, ...]
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    read_as: Mapping[str, Any] = field(default_factory=dict)
    names_among_rows: tuple[str, ...] = ()
