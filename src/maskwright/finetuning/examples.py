"""Labeled examples between readers and tasks: plain text, not tokenized."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from maskwright.core.amounts import counted
from maskwright.core.spec import fingerprint

_REASONS_SHOWN = 3

Label = str | float | tuple[str, ...]
"""The name of a class, a number (regression), or the names of several classes (multi-label)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextExample:
    """One text, or a pair; `label` is None without one (test sets).

    `key`, here and below, is an id from the file, else the number of its (first) line or record.
    """

    key: str
    texts: tuple[str, ...]
    label: Label | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedExample:
    """One sentence of words (or of characters), each with a tag such as "B-PER".

    `tags` is None without tags; `text` is the running text that was split into words, None if the input was words.
    """

    key: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    text: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A right answer.

    Attributes:
        text: As in the file.
        start: Offset of its first character in the context, in code points; None if the file's offset is wrong and the
            context does not contain the text: usable for scoring, not for training.
    """

    text: str
    start: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionExample:
    """A question about a context that may or may not contain the answer.

    `answers` is empty for unanswerable questions and in test files; `is_impossible`: the file says unanswerable.
    """

    key: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    is_impossible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceExample:
    """A question with two or more options, one of which is right.

    `context` and `question` may be empty, and the options may complete the question (SWAG). `label` is the index of the
    right option, None in test files.
    """

    key: str
    context: str
    question: str
    options: tuple[str, ...]
    label: int | None


Example = TextExample | TaggedExample | QuestionExample | ChoiceExample
E = TypeVar("E", TextExample, TaggedExample, QuestionExample, ChoiceExample)


def has_label(example: Example) -> bool:
    """Whether an example has a label; for questions also whether it is marked as unanswerable."""
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
    """A skipped row: file and line or record, and why it was skipped."""

    place: str
    reason: str


def summary_of(skipped: Sequence[Skipped]) -> str:
    """Return the most frequent reasons, with their numbers and first places."""
    counts = Counter(row.reason for row in skipped).most_common(_REASONS_SHOWN)
    first = {row.reason: row.place for row in reversed(skipped)}
    return "; ".join(f"{reason} ({counted(count, 'time')}, first at {first[reason]})" for reason, count in counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleFile(Generic[E]):
    """The content of one labeled file.

    Attributes:
        name: The file or folder, for messages.
        examples: In the order of the file.
        skipped: Skipped rows with reasons.
        notes: Messages about guesses ("text: column 'satz'").
        read_as: The guesses as fields of `readers.ReadOptions`, to read other files of the data in the same way.
    """

    name: str
    examples: tuple[E, ...]
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    read_as: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Identifies the examples, independently of their file."""
        return fingerprint([repr(example) for example in self.examples])
