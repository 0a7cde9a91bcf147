"""Which column of a table is the text, which the label: as the user named them, else guessed by usual names.

The guess is simple and always in the notes. Where the header has no usual name, the user names the columns.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from maskwright.core.errors import DataError, nearest
from maskwright.finetuning.readers.options import Columns, ReadOptions, TextKind, as_names

if TYPE_CHECKING:
    from maskwright.finetuning.readers.tables import Table

# Usual names, in lower case; the first that the table has is used.
# Names of public data sets and of spreadsheets in the languages most asked for (English, German, Chinese).
PAIRS = (
    ("sentence1", "sentence2"),
    ("text_a", "text_b"),
    ("premise", "hypothesis"),
    ("premise", "hypo"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("s1", "s2"),
    ("query", "title"),
    ("question", "sentence"),
    ("satz1", "satz2"),
    ("句子1", "句子2"),
)
TEXTS = (
    "text", "sentence", "text_a", "review", "comment", "comment_text", "content", "body", "document",
    "tweet", "message", "utterance", "question", "title", "satz", "kommentar", "rezension", "nachricht",
    "bewertungstext", "文本", "句子", "内容", "评论", "标题",
)  # fmt: skip
LABELS = (
    "label", "labels", "gold_label", "class", "category", "categories", "target", "sentiment", "score",
    "rating", "stars", "is_duplicate", "quality", "intent", "emotion", "topic", "tags", "y", "klasse",
    "kategorie", "bewertung", "stimmung", "标签", "类别", "情感", "分数",
)  # fmt: skip
KEYS = ("index", "idx", "id", "guid", "key")
WORDS = ("tokens", "words", "token", "word")
TAGS = ("ner_tags", "tags", "labels", "ner", "pos_tags", "chunk_tags", "label", "tag")
QUESTIONS = ("question", "query", "问题")
CONTEXTS = ("context", "passage", "article", "paragraph", "document", "text", "文章", "段落")
ANSWERS = ("answers", "answer", "答案")
CHOICE_CONTEXTS = ("sent1", "context", "article", "passage", "paragraph", "document")
CHOICE_QUESTIONS = ("sent2", "question", "query", "startphrase")
CHOICE_LISTS = ("options", "choices", "choice", "endings")
RIGHT_CHOICES = ("label", "answer", "answers", "answerkey", "correct", "gold")
_SETS = (TEXTS, LABELS, KEYS, WORDS, TAGS, QUESTIONS, CONTEXTS, ANSWERS)
_CHOICE_SETS = (CHOICE_CONTEXTS, CHOICE_QUESTIONS, CHOICE_LISTS, RIGHT_CHOICES)
KNOWN_NAMES = frozenset(name for names in (*PAIRS, *_SETS, *_CHOICE_SETS) for name in names)


class Roles(NamedTuple):
    """Columns of a table by what they mean."""

    texts: tuple[str, ...]
    label: str | None
    label_columns: tuple[str, ...]
    key: str | None


def roles_of(table: "Table", kind: TextKind, options: ReadOptions, notes: list[str]) -> Roles:
    """Find the columns of the texts (one or two), the label and the key; what is guessed goes into the notes.

    Raises:
        DataError: If a named column is absent (the nearest is suggested), or no column has a usual name.
    """
    texts = _texts(table, options, notes)
    if both := [column for column in texts if column in _named_labels(table, options)]:
        raise DataError(
            f"{table.name}: column {both[0]!r} is named as the text and as the label",
            allowed=_shown(table.columns),
            todo="Name two different ones.",
        )
    label, several = (None, ()) if options.labels == "ignored" else _labels(table, kind, options, texts, notes)
    key = key_column(table, options, taken=(*texts, *several, *((label,) if label else ())))
    check_named_once(table, options, (*texts, label, *several, key, *(name for name, _ in options.only)))
    return Roles(texts, label, several, key)


def find_column(table: "Table", columns: Columns, besides: Collection[str] = ()) -> str | None:
    """Return the first of the named columns that the table has, besides some; case is ignored if none fits exactly."""
    names = as_names(columns)
    there = [column for column in table.columns if column not in besides]
    for name in names:
        if name in there:
            return name
    folded = {column.casefold(): column for column in reversed(there)}
    return next((folded[name.casefold()] for name in names if name.casefold() in folded), None)


def need_column(table: "Table", columns: Columns, what: str, option: str) -> str:
    """Return the first of the named columns that the table has.

    `what` (the content) and `option` (the option that names the column) are for the message.

    Raises:
        DataError: If it has none of them.
    """
    if (found := find_column(table, columns)) is not None:
        return found
    names = as_names(columns)
    guess = next((near for name in names if (near := nearest(name, table.columns))), None)
    hint = f"Did you mean {guess!r}?" if guess else f"Name it with the option {option!r}."
    wanted = repr(names[0]) if len(names) == 1 else f"any of {', '.join(map(repr, names))}"
    raise DataError(f"{table.name} has no column {wanted} for {what}", allowed=_shown(table.columns), todo=hint)


def label_column(table: "Table", options: ReadOptions, usual: Sequence[str], what: str) -> str | None:
    """Return the column of labels by its name or a usual one; None where labels are not read or not needed."""
    if options.labels == "needed":
        return need_column(table, options.label or tuple(usual), what, "label")
    return None if options.labels == "ignored" else find_column(table, options.label or tuple(usual))


def key_column(table: "Table", options: ReadOptions, taken: Sequence[str | None] = ()) -> str | None:
    """Return the column of ids: the named one, or a usual one whose values all differ."""
    if options.key:
        return need_column(table, options.key, "the id", "key")
    for name in KEYS:
        column = find_column(table, name)
        if column is not None and column not in taken and column not in table.repeated:
            values = [str(value).strip() for value in table.values_of(column) if value is not None]
            if len(values) == len(table.rows) and len(set(values)) == len(values) and all(values):
                return column
    return None


def check_named_once(table: "Table", options: ReadOptions, used: Iterable[str | None]) -> None:
    """Raise DataError if a guessed column has a name that the header holds more than once: another could be meant."""
    for column in used:
        name = table.repeated.get(column or "")
        if name is None or column in options.named_columns():
            continue
        same = [other for other in table.columns if table.repeated.get(other) == name]
        raise DataError(
            f"{table.name}: the header holds {name!r} {len(same)} times, and one of these columns is to be read",
            allowed=_shown(table.columns),
            todo=f"Name the one that is meant: {same[0]!r} is the first, {same[1]!r} the second.",
        )


def _named_labels(table: "Table", options: ReadOptions) -> set[str]:
    names = (options.label, *options.label_columns)
    return {column for name in names if (column := find_column(table, name)) is not None}


def _texts(table: "Table", options: ReadOptions, notes: list[str]) -> tuple[str, ...]:
    if options.text:
        first = need_column(table, options.text, "the text", "text")
        return (first, need_column(table, options.text2, "the second text", "text2")) if options.text2 else (first,)
    if options.text2:
        second = need_column(table, options.text2, "the second text", "text2")
        raise DataError(
            f"{table.name}: the second text is named ({second!r}), the first is not",
            allowed=_shown(table.columns),
            todo="Name both with the options 'text' and 'text2'.",
        )
    if table.columns == ("text",):
        return table.columns
    named = _named_labels(table, options) | {find_column(table, options.key) or ""}
    for pair in PAIRS:
        found = tuple(column for name in pair if (column := find_column(table, name, besides=named)))
        if len(found) == 2:
            notes.append(f"columns {found[0]!r} and {found[1]!r} are taken as a pair of texts")
            return found
    column = find_column(table, TEXTS, besides=named)
    if column is None:
        label = named if any(named) else {find_column(table, LABELS) or ""}
        column = _only_other(table, label)
    if column is None:
        raise _not_found(table, "text")
    notes.append(f"column {column!r} is taken as the text")
    return (column,)


def _labels(
    table: "Table", kind: TextKind, options: ReadOptions, texts: Sequence[str], notes: list[str]
) -> tuple[str | None, tuple[str, ...]]:
    if named := options.label_columns or as_names(options.label):
        if options.labels == "if_there" and all(find_column(table, name) is None for name in named):
            notes.append(f"no column {named[0]!r}: the file has no labels")
            return None, ()
        if options.label_columns:
            return None, tuple(need_column(table, name, "a class", "label_columns") for name in named)
        return need_column(table, named, "the label", "label"), ()
    rest = [column for column in table.columns if column not in texts]
    if kind == "multi_label" and len(flags := [column for column in rest if _is_flags(table, column)]) > 1:
        notes.append(f"columns {', '.join(map(repr, flags))} hold 0 and 1 and are taken as the classes")
        return None, tuple(flags)
    label = find_column(table, LABELS, besides=texts) or _only_other(table, texts)
    if label is not None:
        notes.append(f"column {label!r} is taken as the label")
        return label, ()
    if options.labels == "if_there":
        notes.append("no column has a usual name of labels: the file has no labels")
        return None, ()
    raise _not_found(table, "label")


def _only_other(table: "Table", taken: Collection[str]) -> str | None:
    """Return the only column of a table with a header that is neither taken nor an id, if there is just one."""
    rest = [column for column in table.columns if column not in taken and column.casefold() not in KEYS]
    return rest[0] if len(rest) == 1 and not rest[0].isdecimal() else None


def _not_found(table: "Table", role: str) -> DataError:
    row = zip(table.columns, table.rows[0][1], strict=True)
    shown = "; ".join(f"{column}: {str(value)[:20]}" for column, value in row if column.isdecimal())
    pairs = " For pairs: `--text COLUMN --text2 COLUMN`." if role == "text" else ""
    return DataError(
        f"{table.name}: no column has a usual name of a {role}" + (f" (the first row is {shown})" if shown else ""),
        allowed=_shown(table.columns),
        todo=f"Name it, `--{role} COLUMN`.{pairs}",
    )


def _is_flags(table: "Table", column: str) -> bool:
    values = {str(value).strip().casefold() for value in table.values_of(column) if value is not None}
    return bool(values) and values <= {"0", "1", "true", "false", "0.0", "1.0"}


def _shown(columns: Sequence[str]) -> str:
    return ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
