"""Sentences of words with a tag each: CoNLL columns, records with lists, or plain text to be cut into words."""

import re
from pathlib import Path

from maskwright.core.amounts import counted
from maskwright.finetuning.examples import ExampleFile, TaggedExample
from maskwright.finetuning.readers import column_names
from maskwright.finetuning.readers.conll import read_conll
from maskwright.finetuning.readers.formats import format_of
from maskwright.finetuning.readers.labels import class_name
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.finetuning.readers.roles import find_column, key_column, need_column
from maskwright.finetuning.readers.rows import Row, Table
from maskwright.finetuning.readers.skips import Skips
from maskwright.finetuning.readers.tables import read_table
from maskwright.finetuning.readers.tags import check_tags, scheme_note
from maskwright.finetuning.readers.texts import as_text

# A Han character (with its extensions), a run of letters and digits of any other script, or a single other mark.
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_HAN}]|[^\W{_HAN}]+|[^\w\s]")


def read_tagged(path: Path, options: ReadOptions = ReadOptions()) -> ExampleFile[TaggedExample]:
    """Read sentences of words with a tag each.

    Args:
        path: CoNLL columns; JSONL, JSON or Parquet with a list of words and a list of tags in each record; or, where
            tags are ignored, one text a line.
        options: How to read it.

    Raises:
        DataError: If the file cannot be read, columns cannot be found, or most rows are bad.
    """
    format = format_of(path, "tagging", options)
    if format == "conll":
        return read_conll(path, options)
    skips = Skips(str(path), options.bad_rows)
    table = read_table(path, format, options, skips)
    if not table.rows:
        skips.finished(0)
    notes = list(table.notes)
    words_column = need_column(table, options.text or (*column_names.WORDS, *column_names.TEXTS), "the words", "text")
    tags_column = None
    if options.labels == "needed":
        tags_column = need_column(table, options.label or column_names.TAGS, "the tags", "label")
    elif options.labels == "if_there":
        tags_column = find_column(table, options.label or column_names.TAGS)
    key = key_column(table, options, taken=[name for name in (words_column, tags_column) if name])
    examples = []
    first: dict[str, str] = {}  # the place of each tag
    cut = 0
    for row in table.rows:
        try:
            example = _example(table, row, words_column, tags_column, key)
            cut += isinstance(row.values[table.columns.index(words_column)], str)
        except ValueError as error:
            skips.add(table.place(row), str(error))
            continue
        if example.tags is None and options.labels == "needed":
            skips.add(table.place(row), "no tags")
        else:
            examples.append(example)
            for number, tag in enumerate(example.tags or (), 1):
                first.setdefault(tag, f"{table.place(row)}, word {number}")
    if cut:
        notes.append(f"{cut} texts are cut into words: Han characters one by one, else at spaces and punctuation")
    skipped = skips.finished(len(examples))
    if tagged := [example.tags for example in examples if example.tags is not None]:
        check_tags(tagged, first.__getitem__)
        notes.append(scheme_note(tagged))
    read_as = {"text": words_column} | ({"label": tags_column} if tags_column else {})
    return ExampleFile(name=str(path), examples=tuple(examples), skipped=skipped, notes=tuple(notes), read_as=read_as)


def cut_into_words(text: str) -> tuple[str, ...]:
    """Cut running text into words as tagged files have them.

    Example:
        >>> cut_into_words("Ada Lovelace's 北京 🙂")
        ('Ada', 'Lovelace', "'", 's', '北', '京', '🙂')
    """
    return tuple(_WORD.findall(text))


def _example(table: Table, row: Row, words_column: str, tags_column: str | None, key: str | None) -> TaggedExample:
    cells = dict(zip(table.columns, row.values, strict=True))
    value = cells[words_column]
    tags = _tags(cells[tags_column]) if tags_column else None
    text = None
    if isinstance(value, str):
        if tags is not None:
            raise ValueError("the words are one text, not a list, so the tags have no words")
        text = as_text(value)
        words = cut_into_words(text)
    elif isinstance(value, list):
        words = tuple(as_text(word) for word in value)
    else:
        raise ValueError(f"the words are a {type(value).__name__}, not a list")
    if not words:
        raise ValueError("no words")
    if not all(word.strip() for word in words):
        raise ValueError("one of the words is empty")
    if tags is not None and len(tags) != len(words):
        raise ValueError(f"{counted(len(words), 'word')} with {counted(len(tags), 'tag')}")
    name = as_text(cells[key]).strip() if key else str(row.number)
    return TaggedExample(key=name, words=words, tags=tags, text=text)


def _tags(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise ValueError(f"the tags are a {type(value).__name__}, not a list")
    tags = [class_name(tag) for tag in value]
    if any(tag is None for tag in tags):
        raise ValueError("one of the tags is missing")
    return tuple(tag for tag in tags if tag is not None)
