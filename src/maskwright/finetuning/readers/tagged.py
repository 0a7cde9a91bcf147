"""Sentences of words with a tag each: CoNLL columns, records with lists, or plain text to be split into words.

Tags are kept as written; the notes name their scheme. A file in which some tags mark entities and others do not is
refused.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from maskwright.core.amounts import counted
from maskwright.core.errors import DataError
from maskwright.finetuning.examples import ExampleFile, TaggedExample
from maskwright.finetuning.metrics.entities import is_entity_tag, mark_entities, scheme_of
from maskwright.finetuning.readers.files import Skips, format_of, lines_of, load_text
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.finetuning.readers.tables import Cells, Row, Table, as_text, read_table
from maskwright.finetuning.readers.texts import class_name

# A Han character (with its extensions), a run of letters and digits of any other script, or a single other mark.
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_HAN}]|[^\W{_HAN}]+|[^\w\s]")
# Only these end a word or make a line blank. Words may consist of other white space, e.g. an ideographic space.
_SPACES = " \t"
_TAGS_SHOWN = 8


def read_tagged(path: Path, options: ReadOptions = ReadOptions()) -> ExampleFile[TaggedExample]:
    """Read sentences of words with a tag each.

    Formats: CoNLL columns; JSON, JSON Lines or Parquet with a list of words and a list of tags in each record; or,
    where tags are ignored, one text per line.
    """
    skips = Skips(str(path))
    format = format_of(path, "tagging", options)
    is_conll = format == "conll"
    table = _read_conll(path, options, skips) if is_conll else read_table(path, format, options, skips)
    columns = {"text": "words", "label": "tags"} if is_conll else table.roles("tagging", options)

    def example(row: Row, key: str) -> TaggedExample:
        words, text = _words(row.cells[columns["text"] or ""])
        if options.word_ending == "segmentation_digit":
            words = _without_digits(words)
        label = columns["label"]
        tags = _tags(row.cells[label], len(words), is_text=text is not None) if label else None
        if tags is None and options.labels == "needed":
            raise ValueError("no tags")
        return TaggedExample(key=key, words=words, tags=tags, text=text)

    def notes(examples: Sequence[TaggedExample]) -> list[str]:
        split = sum(example.text is not None for example in examples)
        how = f"{counted(split, 'text')} split into words: Han characters one by one, else at spaces and marks"
        return [*([how] if split else []), *_check_tags(examples, str(path))]

    return table.file(example, columns, options, skips, notes)


def cut_into_words(text: str) -> tuple[str, ...]:
    """Split running text into words as tagged files have them.

    Example:
        >>> cut_into_words("Ada Lovelace's 北京 🙂")
        ('Ada', 'Lovelace', "'", 's', '北', '京', '🙂')
    """
    return tuple(_WORD.findall(text))


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return the characters [start, end) of each word of `cut_into_words`."""
    return [match.span() for match in _WORD.finditer(text)]


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


def _tags(value: object, words: int, *, is_text: bool) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise ValueError(f"the tags are a {type(value).__name__}, not a list")
    if is_text:
        raise ValueError("there are tags, but the words are one text, not a list")
    tags = tuple(tag for one in value if (tag := class_name(one)) is not None)
    if len(tags) != len(value):
        raise ValueError("one of the tags is missing")
    if len(tags) != words:
        raise ValueError(f"{counted(words, 'word')} with {counted(len(tags), 'tag')}")
    return tags


def _read_conll(path: Path, options: ReadOptions, skips: Skips) -> Table:
    """Read CoNLL columns as rows of words and tags.

    Columns are separated by tabs if the file has any, else by runs of spaces. The word is the first column and the
    tag the last, unless the options name others by number ("1", "4", "-1"). `-DOCSTART-` lines and comments are
    skipped; a comment begins with "#", stands before a sentence, and has not the columns of the other lines. All of a
    sentence with a bad line is skipped: one missing word would be wrong too.
    """
    text, more = load_text(path, options.encoding)
    notes = list(more)
    tabs = any("\t" in line.strip(_SPACES) for line in lines_of(text))
    lines = [(number, _split(line, tabs)) for number, line in enumerate(lines_of(text), 1)]
    counts = Counter(len(fields) for _, fields in lines if fields)
    width = counts.most_common(1)[0][0] if counts else 0
    word, tag = _column(path, options.text or ("1",), width, "words"), _tag_column(path, options, width, notes)
    if tag is not None and not options.label and width > 2:
        notes.append(f"words: column {word + 1}, tags: the last of {width} columns")
    comments = 0
    rows: list[Row] = []
    sentence: list[tuple[int, list[str]]] = []
    for number, fields in [*lines, (0, [])]:
        if fields and fields[0].startswith("-DOCSTART-"):
            continue
        if fields and fields[0].startswith("#") and not sentence and len(fields) != width:
            comments += 1
        elif fields:
            sentence.append((number, fields))
        elif sentence:
            if bad := [(number, len(fields)) for number, fields in sentence if len(fields) != width]:
                skips.add(f"{path}, line {bad[0][0]}", f"{counted(bad[0][1], 'column')} where most lines have {width}")
            else:
                cells: Cells = {
                    "words": [fields[word] for _, fields in sentence],
                    "tags": None if tag is None else [fields[tag] for _, fields in sentence],
                }
                rows.append(Row(f"{path}, line {sentence[0][0]}", str(sentence[0][0]), cells))
            sentence = []
    if comments:
        notes.append(f"{counted(comments, 'comment')} skipped (lines that begin with #)")
    read_as = (
        {"text": str(word % width + 1)} | ({} if tag is None else {"label": str(tag % width + 1)}) if width else {}
    )
    return Table(
        name=str(path), columns=("words", "tags"), rows=rows, notes=tuple(notes), read_as=read_as, is_fixed=True
    )


def _split(line: str, tabs: bool) -> list[str]:
    if not line.strip(_SPACES):
        return []
    return line.rstrip(_SPACES).split("\t") if tabs else re.split(" +", line.strip(_SPACES))


def _tag_column(path: Path, options: ReadOptions, width: int, notes: list[str]) -> int | None:
    """Return the index of the tags' column; None where tags are not read."""
    if options.labels == "ignored" or (width == 1 and options.labels == "if_there"):
        return None
    if options.labels == "if_there" and options.label and _index(options.label, width) is None:
        notes.append(f"there is no column {options.label[0]}: the file has no tags")
        return None
    if width < 2:
        raise DataError(
            f"{path}: most lines have one column, so there are no tags",
            allowed="a word and its tag on each line, with a tab or spaces between",
            todo="Check that this is the right file; for prediction tags are not needed.",
        )
    return _column(path, options.label or ("-1",), width, "tags")


def _column(path: Path, names: Sequence[str], width: int, what: str) -> int:
    index = _index(names, width)
    if index is None:
        raise DataError(
            f"{path} has no column {names[0]!r} for the {what}", allowed=f"1 to {width}, or -1 for the last column"
        )
    return index


def _index(names: Sequence[str], width: int) -> int | None:
    """Return the index of the first of some columns numbered from 1 or, negative, from the end."""
    numbers = [int(name) for name in names if re.fullmatch(r"-?\d+", name) and 1 <= abs(int(name)) <= width]
    return None if not numbers else numbers[0] - (numbers[0] > 0)


def _check_tags(examples: Sequence[TaggedExample], name: str) -> list[str]:
    """Return a note on the scheme of the tags."""
    counts = Counter(tag for example in examples for tag in example.tags or ())
    if not counts:
        return []
    shown = ", ".join([tag for tag, _ in counts.most_common()][:_TAGS_SHOWN]) + ", ..." * (len(counts) > _TAGS_SHOWN)
    wrong = [tag for tag in counts if not is_entity_tag(tag)]
    if wrong and not mark_entities(counts):
        return [f"{len(counts)} tags that mark no entities, as B-PER would: {shown}"]
    if wrong:
        key = next(example.key for example in examples if wrong[0] in (example.tags or ()))
        raise DataError(
            f"{name}, example {key}: {wrong[0]!r} is not a tag of entities, as others of the file are",
            allowed='"O", or B, I, E, S, L, U or M with a hyphen and a type, e.g. "B-PER"',
            todo=f"Correct {', '.join(map(repr, wrong[:_TAGS_SHOWN]))} in the file.",
        )
    try:
        return [f"tags of scheme {scheme_of(example.tags or () for example in examples)} ({shown})"]
    except DataError as error:
        return [f"tags of no known scheme ({shown}): {error.problem}"]
