"""Sentences of words with a tag each: CoNLL columns, records with lists, or plain text to be cut into words.

Tags are kept as written; the notes name their scheme. Among tags of entities, a tag that is none is refused.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from maskwright.core.amounts import counted
from maskwright.core.errors import DataError, nearest
from maskwright.core.half_characters import HALF_CHARACTER
from maskwright.finetuning.examples import ExampleFile, TaggedExample
from maskwright.finetuning.metrics.entities import is_entity_tag, mark_entities, scheme_of
from maskwright.finetuning.readers.columns import TAGS, TEXTS, WORDS, key_column, label_column, need_column
from maskwright.finetuning.readers.files import LoadedText, Skips, format_of, lines_of, load_text
from maskwright.finetuning.readers.options import Columns, ReadOptions, as_names
from maskwright.finetuning.readers.tables import read_table
from maskwright.finetuning.readers.texts import as_text, class_name

# A Han character (with its extensions), a run of letters and digits of any other script, or a single other mark.
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_HAN}]|[^\W{_HAN}]+|[^\w\s]")
# Only these end a word or make a line blank. Words may consist of other white space, e.g. an ideographic space.
_SPACES = " \t"
_DIGIT_SHARE = 0.95
_TAGS_SHOWN = 8
# B-PER as it may be misspelt: b-PER, B_PER, B:PER.
_LOOSE_TAG = re.compile(r"([BIESLUM])[-_.:/\u2010-\u2015]([^\W\d_].*)", re.IGNORECASE)

_Line = tuple[int, list[str]]
"""Line number and columns."""


def read_tagged(path: Path, options: ReadOptions = ReadOptions()) -> ExampleFile[TaggedExample]:
    """Read sentences of words with a tag each.

    Formats: CoNLL columns; JSONL, JSON or Parquet with a list of words and a list of tags in each record; or, where
    tags are ignored, one text per line.

    Raises:
        DataError: If the file cannot be read, columns cannot be found, or most rows are bad.
    """
    format = format_of(path, "tagging", options)
    if format == "conll":
        return _read_conll(path, options)
    skips = Skips(str(path), options.bad_rows)
    table = read_table(path, format, options, skips)
    words_column = need_column(table, options.text or (*WORDS, *TEXTS), "the words", "text")
    tags_column = label_column(table, options, TAGS, "the tags")
    key = key_column(table, options, taken=(words_column, tags_column))
    examples = []
    first: dict[str, str] = {}  # the place of each tag
    cut = 0
    for place, number, cells in table.records():
        try:
            words, text = _words(cells[words_column])
            tags = _tags(cells[tags_column], len(words), cut=text is not None) if tags_column else None
            if tags is None and options.labels == "needed":
                raise ValueError("no tags")
            name = as_text(cells[key]).strip() if key else number
        except ValueError as error:
            skips.add(place, str(error))
            continue
        cut += text is not None
        examples.append(TaggedExample(key=name, words=words, tags=tags, text=text))
        for count, tag in enumerate(tags or (), 1):
            first.setdefault(tag, f"{place}, word {count}")
    notes = list(table.notes)
    if cut:
        notes.append(f"{cut} texts are cut into words: Han characters one by one, else at spaces and punctuation")
    read_as = {"text": words_column} | ({"label": tags_column} if tags_column else {})
    return _finished(path, examples, skips, notes, read_as, first.__getitem__)


def _finished(
    path: Path,
    examples: list[TaggedExample],
    skips: Skips,
    notes: list[str],
    read_as: dict[str, str],
    place: Callable[[str], str],
) -> ExampleFile[TaggedExample]:
    skipped = skips.finished(len(examples))
    if tagged := [example.tags for example in examples if example.tags is not None]:
        _check_tags(tagged, place)
        notes.append(_scheme_note(tagged))
    return ExampleFile(name=str(path), examples=tuple(examples), skipped=skipped, notes=tuple(notes), read_as=read_as)


def cut_into_words(text: str) -> tuple[str, ...]:
    """Cut running text into words as tagged files have them.

    Example:
        >>> cut_into_words("Ada Lovelace's 北京 🙂")
        ('Ada', 'Lovelace', "'", 's', '北', '京', '🙂')
    """
    return tuple(_WORD.findall(text))


def _words(value: object) -> tuple[tuple[str, ...], str | None]:
    """Return the words of a cell, and the text that they were cut from, if they were."""
    text = as_text(value) if isinstance(value, str) else None
    if text is None and not isinstance(value, list):
        raise ValueError(f"the words are a {type(value).__name__}, not a list")
    words = cut_into_words(text) if text is not None else tuple(as_text(word) for word in value)  # type: ignore[attr-defined]
    if not words:
        raise ValueError("no words")
    if not all(word.strip() for word in words):
        raise ValueError("one of the words is empty")
    return words, text


def _tags(value: object, words: int, *, cut: bool) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise ValueError(f"the tags are a {type(value).__name__}, not a list")
    if cut:
        raise ValueError("the words are one text, not a list, so the tags have no words")
    tags = tuple(tag for one in value if (tag := class_name(one)) is not None)
    if len(tags) != len(value):
        raise ValueError("one of the tags is missing")
    if len(tags) != words:
        raise ValueError(f"{counted(words, 'word')} with {counted(len(tags), 'tag')}")
    return tags


class _Columns(NamedTuple):
    """Where word and tag are, from 0; negative from the end. The tag is None where tags are not read."""

    word: int
    tag: int | None
    width: int


def _read_conll(path: Path, options: ReadOptions) -> ExampleFile[TaggedExample]:
    """Read CoNLL columns.

    Columns are separated by tabs if the file has any, else by runs of spaces. The word is the first column and the
    tag the last, unless the options name others by number ("1", "4", "-1"). Tags stay as they are written; their
    scheme is noted. `-DOCSTART-` lines and comments (a line beginning with "#" before a sentence that has not the
    columns or the tag of a word) are no words. A sentence with a bad line is left out whole: one missing word would
    be wrong too.
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
        words = tuple(fields[columns.word] for _, fields in sentence)
        tag = columns.tag
        tags = None if tag is None else tuple(fields[tag].strip() for _, fields in sentence)
        examples.append(TaggedExample(key=str(sentence[0][0]), words=words, tags=tags))
        for (number, _), its in zip(sentence, tags or (), strict=False):
            first.setdefault(its, number)
    examples = _without_digits(examples, options, skips, loaded, notes)
    return _finished(path, examples, skips, notes, read_as, lambda tag: f"{loaded.name}, line {first[tag]}")


def _split(line: str, tabs: bool) -> list[str]:
    """Cut a line into columns; a blank one has none."""
    if not line.strip(_SPACES):
        return []
    return line.rstrip("\t ").split("\t") if tabs and "\t" in line else re.split("[ \t]+", line.strip(_SPACES))


def _columns(
    lines: Sequence[_Line], options: ReadOptions, loaded: LoadedText, notes: list[str]
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
    if not options.label and width > 2:
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
    """Return the column numbers within the width."""
    numbers = [int(name) for name in as_names(columns) if re.fullmatch(r"-?\d+", name)]
    return [number for number in numbers if 1 <= abs(number) <= width]


def _sentences(lines: Sequence[_Line], columns: _Columns, notes: list[str]) -> Iterator[list[_Line]]:
    tag = columns.tag
    tags = {fields[tag] for _, fields in lines if tag is not None and _is_word(fields, columns) and fields[0][0] != "#"}
    comments = documents = 0
    sentence: list[_Line] = []
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
    return len(fields) == columns.width and bool(fields[0])


def _is_tagged(fields: Sequence[str], columns: _Columns, tags: set[str]) -> bool:
    return len(fields) == columns.width and (columns.tag is None or fields[columns.tag] in tags)


def _problem(sentence: Sequence[_Line], columns: _Columns) -> tuple[int, str] | None:
    """Return the line and reason if a sentence cannot be read."""
    for number, fields in sentence:
        if len(fields) != columns.width:
            return number, f"{counted(len(fields), 'column')} where most lines have {columns.width}"
        if not fields[columns.word].strip(_SPACES):
            return number, "no word"
        if HALF_CHARACTER.search(fields[columns.word]):
            return number, "half a character in the word (broken UTF-8)"
        if columns.tag is not None and not fields[columns.tag].strip():
            return number, "no tag"
    return None


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


def _check_tags(sentences: Sequence[Sequence[str]], place: Callable[[str], str]) -> None:
    """Raise on other tags among entity tags: each would be a class of its own, and mark no entity.

    Raises:
        DataError: With the place of the first one.
    """
    counts = Counter(tag for tags in sentences for tag in tags)
    if not mark_entities(counts) or not (wrong := [tag for tag in counts if not is_entity_tag(tag)]):
        return
    tag = wrong[0]
    all_of_them = f" are none: {_listed(wrong)}" if len(wrong) > 1 else ""
    marked = sum(counts[tag] for tag in wrong)
    known = [tag for tag in counts if is_entity_tag(tag)]
    guess = _meant(tag) or (f"B-{tag}" if f"B-{tag}" in known else nearest(tag, known))
    raise DataError(
        f"{place(tag)}: {tag!r} is not a tag of entities, as others of the file are; {marked:,} of {counts.total():,} "
        f"tags{all_of_them}",
        allowed='"O", or B, I, E, S, L, U or M with a hyphen and a type, e.g. "B-PER"',
        todo=" ".join(filter(None, [f"Did you mean {guess!r}?" if guess else "", "Correct the tag in the file."])),
    )


def _meant(tag: str) -> str | None:
    """Return how a tag of entities would be written that is only miswritten, "B-PER" of "b_PER"; else None."""
    if tag in ("o", "0"):
        return "O"
    match = _LOOSE_TAG.fullmatch(tag)
    return f"{match[1].upper()}-{match[2]}" if match and not is_entity_tag(tag) else None


def _scheme_note(sentences: Sequence[Sequence[str]]) -> str:
    """Say which scheme of entities the tags of a file follow, if any."""
    counts = Counter(tag for tags in sentences for tag in tags)
    shown = _listed([tag for tag, _ in counts.most_common()])
    try:
        scheme = scheme_of(sentences)
    except DataError as error:
        if mark_entities(counts):
            return f"tags of no known scheme ({shown}): {error.problem}"
        note = f"{len(counts)} tags that mark no entities as BIO and its like do: {shown}"
        miswritten = next((tag for tag in counts if tag != "0" and _meant(tag)), None) if "O" in counts else None
        return f"{note}; if they should, write {_meant(miswritten)!r} for {miswritten!r}" if miswritten else note
    return f"tags of scheme {scheme} ({shown})"


def _listed(tags: Sequence[str]) -> str:
    return ", ".join(tags[:_TAGS_SHOWN]) + (", ..." if len(tags) > _TAGS_SHOWN else "")
