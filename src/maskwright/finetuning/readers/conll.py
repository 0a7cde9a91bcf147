"""CoNLL columns: one word a line with its tag, a blank line between sentences."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from maskwright.core.amounts import counted
from maskwright.core.errors import DataError
from maskwright.core.half_characters import HALF_CHARACTER
from maskwright.finetuning.examples import ExampleFile, TaggedExample
from maskwright.finetuning.readers.loading import LoadedText, lines_of, load_text
from maskwright.finetuning.readers.options import Columns, ReadOptions, as_names
from maskwright.finetuning.readers.skips import Skips
from maskwright.finetuning.readers.tags import check_tags, scheme_note

# Only these end a word or make a line blank. Words may be of other white space, e.g. an ideographic space.
_SPACES = " \t"
_RUN_OF_SPACES = re.compile("[ \t]+")
_MORE_COLUMNS = 2
_DIGIT_SHARE = 0.95

Line = tuple[int, list[str]]
"""Line number and columns."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where word and tag stand, from 0; negative from the end. The tag is None where tags are not read."""

    word: int
    tag: int | None
    least: int


def read_conll(path: Path, options: ReadOptions = ReadOptions()) -> ExampleFile[TaggedExample]:
    """Read sentences of words with a tag each.

    Columns are separated by tabs if the file has any, else by runs of spaces. The word is the first column and the
    tag the last, unless the options name others by number ("1", "4", "-1"). Tags stay as they are written; their
    scheme is noted. `-DOCSTART-` lines and comments (a line beginning with "#" before a sentence that has not the
    columns or the tag of a word) are no words. A sentence with a bad line is left out whole: one missing word would
    be wrong too.

    Args:
        path: The file.
        options: Columns, whether tags are needed, and what words end in.

    Raises:
        DataError: If the file cannot be read, or most sentences are bad.
    """
    skips = Skips(str(path), options.bad_rows)
    loaded = load_text(path, options.encoding)
    tabs = "\t" in loaded.text
    lines = [(number, _split(line, tabs)) for number, line in enumerate(lines_of(loaded.text), 1)]
    notes = list(loaded.notes)
    columns, read_as = _columns(lines, options, loaded, notes)
    examples = []
    first: dict[str, int] = {}  # the line of each tag
    for sentence in _sentences(lines, columns, notes):
        problem = _problem(sentence, columns)
        if problem is not None:
            skips.add(f"{loaded.name}, line {problem[0]}", problem[1])
            continue
        examples.append(_example(sentence, columns))
        if columns.tag is not None:
            for number, fields in sentence:
                first.setdefault(fields[columns.tag].strip(), number)
    examples = _without_digits(examples, options, skips, loaded, notes)
    skipped = skips.finished(len(examples))
    tagged = [example.tags for example in examples if example.tags is not None]
    if tagged:
        check_tags(tagged, lambda tag: f"{loaded.name}, line {first[tag]}")
        notes.append(scheme_note(tagged))
    return ExampleFile(name=str(path), examples=tuple(examples), skipped=skipped, notes=tuple(notes), read_as=read_as)


def _split(line: str, tabs: bool) -> list[str]:
    """Cut a line into columns; a blank one has none."""
    if not line.strip(_SPACES):
        return []
    return line.rstrip("\t ").split("\t") if tabs and "\t" in line else _RUN_OF_SPACES.split(line.strip(_SPACES))


def _columns(
    lines: Sequence[Line], options: ReadOptions, loaded: LoadedText, notes: list[str]
) -> tuple[_Columns, dict[str, str]]:
    """Return where words and tags stand, and the same as fields of `ReadOptions`."""
    counts = Counter(len(fields) for _, fields in lines if fields)
    width = counts.most_common(1)[0][0] if counts else 0
    word = _number(options.text, 0, width, "words", loaded.name)
    read_as = {"text": str(word % width + 1)} if width else {}
    if options.labels == "ignored" or (width == 1 and options.labels == "if_there"):
        return _Columns(word, None, width), read_as
    if options.labels == "if_there" and options.label and not _fitting(options.label, width):
        notes.append(f"there is no column {as_names(options.label)[0]}: the file has no tags")
        return _Columns(word, None, width), read_as
    if width < 2:
        raise DataError(
            f"{loaded.name}: most lines have one column, so there are no tags",
            allowed="a word and its tag on each line, with a tab or spaces between",
            todo="Check that this is the right file; for prediction tags are not needed.",
        )
    tag = _number(options.label, -1, width, "tags", loaded.name)
    if not options.label and width > _MORE_COLUMNS:
        notes.append(
            f"the words are taken from column {word + 1 or width} and the tags from the last of {width} columns"
        )
    return _Columns(word, tag, width), {**read_as, "label": str(tag % width + 1)}


def _number(columns: Columns, default: int, width: int, what: str, file: str) -> int:
    """Return a column's place, from 0, of the number that names it, from 1 or, negative, from the end."""
    names = as_names(columns)
    if not names:
        return default
    for number in _fitting(columns, width):
        return number - 1 if number > 0 else number
    raise DataError(
        f"{file} has no column {names[0]!r} for the {what}", allowed=f"1 to {width}, or -1 for the last column"
    )


def _fitting(columns: Columns, width: int) -> list[int]:
    """Return those numbers of columns that there are."""
    numbers = [int(name) for name in as_names(columns) if re.fullmatch(r"-?\d+", name)]
    return [number for number in numbers if 1 <= abs(number) <= width]


def _sentences(lines: Sequence[Line], columns: _Columns, notes: list[str]) -> Iterator[list[Line]]:
    tag = columns.tag
    tags = {fields[tag] for _, fields in lines if tag is not None and _is_word(fields, columns) and fields[0][0] != "#"}
    comments = documents = 0
    sentence: list[Line] = []
    for number, fields in lines:
        if not fields:
            if sentence:
                yield sentence
            sentence = []
        elif fields[0].startswith("-DOCSTART-"):
            documents += 1
        elif not sentence and fields[0].startswith("#") and not _is_tagged(fields, columns, tags):
            comments += 1
        else:
            sentence.append((number, fields))
    if sentence:
        yield sentence
    if documents:
        notes.append(f"{counted(documents, 'line')} -DOCSTART- {_are(documents)} no words")
    if comments:
        notes.append(f"{counted(comments, 'line')} beginning with # {_are(comments)} taken as comments")


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _is_word(fields: Sequence[str], columns: _Columns) -> bool:
    return len(fields) == columns.least and bool(fields[0])


def _is_tagged(fields: Sequence[str], columns: _Columns, tags: set[str]) -> bool:
    return len(fields) == columns.least and (columns.tag is None or fields[columns.tag] in tags)


def _problem(sentence: Sequence[Line], columns: _Columns) -> tuple[int, str] | None:
    """Return the line and reason if a sentence cannot be read."""
    for number, fields in sentence:
        if len(fields) != columns.least:
            return number, f"{counted(len(fields), 'column')} where most lines have {columns.least}"
        if not fields[columns.word].strip(_SPACES):
            return number, "no word"
        if HALF_CHARACTER.search(fields[columns.word]):
            return number, "half a character in the word (broken UTF-8)"
        if columns.tag is not None and not fields[columns.tag].strip():
            return number, "no tag"
    return None


def _example(sentence: Sequence[Line], columns: _Columns) -> TaggedExample:
    words = tuple(fields[columns.word] for _, fields in sentence)
    tag = columns.tag
    tags = None if tag is None else tuple(fields[tag].strip() for _, fields in sentence)
    return TaggedExample(key=str(sentence[0][0]), words=words, tags=tags)


def _without_digits(
    examples: list[TaggedExample], options: ReadOptions, skips: Skips, loaded: LoadedText, notes: list[str]
) -> list[TaggedExample]:
    """Take the digit off every word ("科0" is 科, the first of its word) if the options say so; never by a guess."""
    if options.word_ending == "as_written":
        words = [word for example in examples for word in example.words]
        if sum(len(word) > 1 and word[-1].isdecimal() for word in words) > _DIGIT_SHARE * len(words):
            notes.append("nearly every word ends in a digit, which is kept (in Weibo NER's files it is no part of it)")
        return examples
    kept = []
    for example in examples:
        if all(len(word) > 1 and word[-1].isdecimal() for word in example.words):
            kept.append(replace(example, words=tuple(word[:-1] for word in example.words)))
        else:
            wrong = next(word for word in example.words if len(word) < 2 or not word[-1].isdecimal())
            skips.add(
                f"{loaded.name}, line {example.key}", f"the word {wrong!r} does not end in a digit as the others do"
            )
    return kept
