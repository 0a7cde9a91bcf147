"""Labeled examples between readers and tasks: plain text, not tokenized."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from maskwright.core.spec import fingerprint
from maskwright.core.text.amounts import pluralize


@dataclass(frozen=True, slots=True, kw_only=True)
class _LocatedExample:
    """An example with a key: an id from the file, else the number of the (first) line or record.

    `key_word` is "line", "record" or "question" where the key is the number or id of one, else "example"; `location` is
    for messages. Of the subclasses, `is_labeled` says whether the answer is known; `content` is what the example holds
    besides key and answer; `shown` is its text for display.
    """

    key: str
    key_word: str = field(default="example", repr=False, compare=False)

    @property
    def location(self) -> str:
        return f"{self.key_word} {self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextExample(_LocatedExample):
    """One text, a pair, or a triplet (embedding).

    `label` is the name of a class, a number (regression, similarity), the names of classes (multi-label), or None.
    """

    texts: tuple[str, ...]
    label: Any

    is_labeled = property(lambda self: self.label is not None)
    content = property(lambda self: self.texts)
    shown = property(lambda self: " | ".join(self.texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedExample(_LocatedExample):
    """One sentence of words (or of characters), each with a tag such as "B-PER".

    `tags` is None without tags; `text` is the running text that was split into words, None if the input was words.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    text: str | None = field(default=None, repr=False)

    is_labeled = property(lambda self: self.tags is not None)
    content = property(lambda self: self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A right answer.

    `start` is the offset of its first character in the context, in code points; None if the file's offset is wrong and
    the context does not contain the text: usable for scoring, not for training.
    """

    text: str
    start: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionExample(_LocatedExample):
    """A question about a context that may or may not contain the answer.

    `answers` is empty for unanswerable questions and in test files; `is_impossible`: the file says unanswerable.
    """

    question: str
    context: str
    answers: tuple[Answer, ...]
    is_impossible: bool = False

    is_labeled = property(lambda self: bool(self.answers) or self.is_impossible)
    content = property(lambda self: (self.question, self.context))
    shown = property(lambda self: self.question)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceExample(_LocatedExample):
    """A question with two or more options, one of which is right.

    `context` and `question` may be empty, and the options may complete the question (SWAG). `label` is the index of the
    right option, None in test files.
    """

    context: str
    question: str
    options: tuple[str, ...]
    label: int | None

    is_labeled = property(lambda self: self.label is not None)
    content = property(lambda self: (self.context, self.question, self.options))
    shown = property(lambda self: self.question or self.context)


Example = TextExample | TaggedExample | QuestionExample | ChoiceExample
E = TypeVar("E", TextExample, TaggedExample, QuestionExample, ChoiceExample)


def has_labels(examples: Sequence[Example]) -> bool:
    return any(example.is_labeled for example in examples)


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A skipped row: file and line or record, and why it was skipped."""

    location: str
    reason: str


def summary_of(skipped: Sequence[SkippedRow]) -> str:
    """Return the three most frequent reasons, with their numbers and first places."""
    counts = Counter(row.reason for row in skipped).most_common(3)
    first = {row.reason: row.location for row in reversed(skipped)}
    return "; ".join(f"{reason} ({pluralize(count, 'time')}, first at {first[reason]})" for reason, count in counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleFile(Generic[E]):
    """The content of one labeled file (or folder) `name`, with messages about guesses ("text: column 'satz'").

    `read_as` holds the guesses as fields of `readers.ReadOptions`, to read other files of the data in the same way.
    """

    name: str
    examples: tuple[E, ...]
    skipped: tuple[SkippedRow, ...] = ()
    notes: tuple[str, ...] = ()
    read_as: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Identifies the examples, independently of their file."""
        return fingerprint([repr(example) for example in self.examples])
