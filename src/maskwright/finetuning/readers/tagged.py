"""Sentences of words with a tag each: CoNLL columns, records with lists, or plain text to be split into words.

Tags are kept as written; a note says whether they mark entities.
"""

import itertools
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from maskwright.core.errors import DataError
from maskwright.core.text.amounts import pluralize
from maskwright.data.scripts import WORD
from maskwright.data.tables import Row
from maskwright.finetuning.examples import ExampleFile, TaggedExample
from maskwright.finetuning.metrics.entities import mark_entities
from maskwright.finetuning.readers.files import Skips, format_of, lines_of, load_text
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.finetuning.readers.tables import Source, Table, as_text, read_table
from maskwright.finetuning.readers.texts import class_name

_WORD_OR_MARK = re.compile(rf"{WORD}|[^\w\s]")
# Only these end a word or make a line blank. Words may consist of other white space, e.g. an ideographic space.
_SPACES = " \t"
_TAGS_SHOWN = 8


def read_tagged(source: Source, options: ReadOptions = ReadOptions()) -> ExampleFile[TaggedExample]:
    """Read sentences of words with a tag each.

    Formats: CoNLL columns; JSON, JSON Lines or Parquet with a list of words and a list of tags in each record; or,
    where tags are ignored, one text per line.
    """
    if isinstance(source, Path) and format_of(source, "tagging", options) == "conll":
        table = _read_conll(source, options)
        columns = _conll_columns(table, options)
        if len(table.columns) > 2:
            table.notes.append(f"words: column {columns['text']}, tags: column {columns['label']}")
    else:
        table = read_table(source, "tagging", options)
        columns = table.roles("tagging", options)

    def example(row: Row, key: str) -> TaggedExample:
        words, text = _words(row.cells[columns["text"] or ""])
        if options.word_ending == "segmentation_digit":
            words = _without_digits(words)
        label = columns["label"]
        tags = _tags(row.cells[label], len(words)) if label else None
        if tags is None and options.labels == "needed":
            raise ValueError("no tags")
        if tags is not None and text is not None:
            raise ValueError("there are tags, but the words are one text, not a list")
        return TaggedExample(key=key, words=words, tags=tags, text=text)

    file, notes = table.file(example, columns), []
    if split := sum(example.text is not None for example in file.examples):
        text = pluralize(split, "text")
        notes.append(f"{text} split into words: Han characters one by one, else at spaces and marks")
    if counts := Counter(tag for example in file.examples for tag in example.tags or ()):
        shown = ", ".join(tag for tag, _ in counts.most_common(_TAGS_SHOWN)) + ", ..." * (len(counts) > _TAGS_SHOWN)
        kind = "tags of entities" if mark_entities(counts) else "tags that mark no entities, as B-PER would"
        notes.append(f"{kind}: {shown}")
    return replace(file, notes=(*file.notes, *notes))


def cut_into_words(text: str) -> tuple[str, ...]:
    """Split running text into words as tagged files have them.

    Example:
        >>> cut_into_words("Ada Lovelace's 北京 🙂")
        ('Ada', 'Lovelace', "'", 's', '北', '京', '🙂')
    """
    return tuple(_WORD_OR_MARK.findall(text))


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return the characters [start, end) of each word of `cut_into_words`."""
    return [match.span() for match in _WORD_OR_MARK.finditer(text)]


def _words(value: object) -> tuple[tuple[str, ...], str | None]:
    """Return the words of a cell, and the text that they were split from, if any."""
    text = as_text(value) if isinstance(value, str) else None
    if text is None and not isinstance(value, list):
        raise ValueError(f"the words are a {type(value).__name__}, not a list")
    words = cut_into_words(text) if text is not None else tuple(as_text(word) for word in value)  # type: ignore[attr-defined]
    if not words:
        raise ValueError("no words")
    if not all(word.strip(_SPACES) for word in words):
        raise ValueError("one of the words is empty")
    return words, text


def _without_digits(words: tuple[str, ...]) -> tuple[str, ...]:
    """Remove the digit that ends each word of Weibo NER: "科0" is 科, the first character of its word."""
    if wrong := [word for word in words if len(word) < 2 or not word[-1].isdecimal()]:
        raise ValueError(f"the word {wrong[0]!r} does not end in a digit as the others do")
    return tuple(word[:-1] for word in words)


def _tags(value: object, words: int) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise ValueError(f"the tags are a {type(value).__name__}, not a list")
    tags = tuple(tag for one in value if (tag := class_name(one)) is not None)
    if len(tags) != len(value):
        raise ValueError("one of the tags is missing")
    if len(tags) != words:
        raise ValueError(f"{pluralize(words, 'word')} with {pluralize(len(tags), 'tag')}")
    return tags


def _read_conll(path: Path, options: ReadOptions) -> Table:
    """Read CoNLL columns as a table with a sentence in each row: "1", "2" and so on are lists.

    Columns are separated by tabs if the file has any, else by runs of spaces. `-DOCSTART-` lines and comments are
    skipped; a comment begins with "#", stands before a sentence, and has not the columns of the other lines. All of a
    sentence with a bad line is skipped: one missing word would be wrong too.
    """
    skips, written = Skips(str(path)), lines_of(load_text(path, options.encoding))
    tabs = any("\t" in line.strip(_SPACES) for line in written)
    lines = [(number, _split(line, tabs)) for number, line in enumerate(written, 1)]
    counts = Counter(len(fields) for _, fields in lines if fields)
    width = counts.most_common(1)[0][0] if counts else 0
    columns = tuple(str(number) for number in range(1, width + 1))
    rows: list[Row] = []
    for _, group in itertools.groupby(lines, key=lambda line: line[1] == []):
        words = (line for line in group if line[1] and line[1][0] != "-DOCSTART-")
        sentence = list(itertools.dropwhile(lambda line: line[1][0].startswith("#") and len(line[1]) != width, words))
        bad = [(number, fields) for number, fields in sentence if len(fields) != width]
        if bad:
            number, fields = bad[0]
            skips.add(f"{path}, line {number}", f"{pluralize(len(fields), 'column')} where most lines have {width}")
        elif sentence:
            lists: list[object] = list(map(list, zip(*(fields for _, fields in sentence), strict=True)))
            first = sentence[0][0]
            rows.append(Row(f"{path}, line {first}", str(first), dict(zip(columns, lists, strict=True))))
    return Table(skips=skips, columns=columns, rows=rows)


def _split(line: str, tabs: bool) -> list[str]:
    if not line.strip(_SPACES):
        return []
    return line.rstrip(_SPACES).split("\t") if tabs else re.split(" +", line.strip(_SPACES))


def _conll_columns(table: Table, options: ReadOptions) -> dict[str, str | None]:
    """Return the column of the words, else the first, and of the tags, else the last.

    There is none of tags where they are not read, or not there and not needed.
    """
    columns: dict[str, str | None] = {"text": table.need(options.text or ("1",), "the words", "--text"), "label": None}
    named, is_alone = options.label or ("-1",), len(table.columns) < 2
    if options.labels == "ignored" or (options.labels == "if_there" and (is_alone or table.find(named) is None)):
        return columns
    if is_alone:
        raise DataError(
            f"{table.name}: most lines have one column, so there are no tags",
            allowed="a word and its tag on each line, with a tab or spaces between",
            hint="Check that this is the right file; for prediction tags are not needed.",
        )
    return columns | {"label": table.need(named, "the tags", "--label")}
