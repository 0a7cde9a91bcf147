"""Which format a labelled file has, by its suffix and, where that says little, by its first lines."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maskwright.core.errors import DataError
from maskwright.finetuning.readers.json_records import is_json_lines, parse_json
from maskwright.finetuning.readers.loading import LoadedText, check_exists, lines_of, load_text, suffix_of
from maskwright.finetuning.readers.options import Format, Kind, ReadOptions

FORMATS_OF: Mapping[Kind, tuple[Format, ...]] = {
    "classification": ("csv", "tsv", "jsonl", "json", "parquet", "text"),
    "regression": ("csv", "tsv", "jsonl", "json", "parquet", "text"),
    "multi_label": ("csv", "tsv", "jsonl", "json", "parquet", "text"),
    "tagging": ("conll", "jsonl", "json", "parquet", "text"),
    "question_answering": ("squad", "jsonl", "json", "csv", "tsv", "parquet"),
    "multiple_choice": ("race", "dream", "jsonl", "json", "csv", "tsv", "parquet"),
}
"""Formats that each kind of task is read from."""

_SUFFIXES: dict[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


_CALLED = frozenset({*_SUFFIXES, ".tsv", ".json", ".txt", ".conll"})


def is_called_a_file(path: Path) -> bool:
    """Whether a name ends as those of labelled files do, compressed or not."""
    return suffix_of(path) in _CALLED


def format_of(path: Path, kind: Kind, options: ReadOptions) -> Format:
    """Return the format of a file (or of a folder, for RACE).

    Raises:
        DataError: If there is no such file, or the kind of task is not read from that format.
    """
    check_exists(path)
    format = options.format or _guess(path, kind, options)
    if format not in FORMATS_OF[kind]:
        raise DataError(
            f"{path}: {kind} is not read from the format {format!r}",
            allowed=", ".join(FORMATS_OF[kind]),
            todo="Name the format if it was guessed wrongly, or the kind of task.",
        )
    return format


def _guess(path: Path, kind: Kind, options: ReadOptions) -> Format:
    if path.is_dir() and kind == "multiple_choice":
        return "race"
    suffix = suffix_of(path)
    if suffix == ".tsv" and kind in ("classification", "regression", "multi_label"):
        return "tsv"
    if suffix in _SUFFIXES and not (kind == "multiple_choice" and suffix in (".jsonl", ".ndjson")):
        return _SUFFIXES[suffix]
    loaded = load_text(path, options.encoding)
    if loaded.text.lstrip()[:1] in ("{", "["):
        return _json_format(loaded, kind)
    match kind:
        case "tagging":
            if options.labels == "ignored" and suffix == ".txt" and not _in_columns(loaded):
                return "text"
            return "conll"
        case "question_answering":
            return "tsv" if suffix == ".tsv" else "squad"
        case "multiple_choice":
            return "tsv" if suffix == ".tsv" else "race"
        case _:
            return "tsv" if suffix == ".tsv" or _has_tabs(loaded) else "text"


def _has_tabs(loaded: LoadedText) -> bool:
    lines = [line for line in lines_of(loaded.text)[:200] if line]
    return sum("\t" in line for line in lines) > len(lines) // 2


def _in_columns(loaded: LoadedText) -> bool:
    """Whether most lines are a word with its columns, or a blank line, rather than running text."""
    lines = [line.split() for line in lines_of(loaded.text)[:200]]
    counts = [len(line) for line in lines if line]
    return max(counts, default=0) <= 1 or (len(set(counts)) == 1 and len(counts) > 1 and counts[0] <= 5)


def _json_format(loaded: LoadedText, kind: Kind) -> Format:
    lines = is_json_lines(loaded.text)
    if kind not in ("question_answering", "multiple_choice"):
        return "jsonl" if lines else "json"
    if lines:
        first = next(line for line in lines_of(loaded.text) if line.strip())
        return "race" if kind == "multiple_choice" and '"questions"' in first else "jsonl"
    return _document_format(parse_json(loaded), kind)


def _document_format(data: Any, kind: Kind) -> Format:
    items = data.get("data") if isinstance(data, dict) else data
    first = items[0] if isinstance(items, list) and items else data
    if kind == "question_answering":
        return "squad" if isinstance(first, dict) and ({"paragraphs", "qas"} & set(first)) else "json"
    if isinstance(first, list):
        return "dream"
    return "race" if isinstance(first, dict) and "questions" in first else "json"
