"""The data card: what was read, dropped and kept, and why; as JSON and Markdown."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maskwright.core.text.amounts import listed, pluralize, size_in_bytes
from maskwright.data.cleaning.block import Counts
from maskwright.data.cleaning.statistics import TextStatistics
from maskwright.data.cleaning.text import Cleaning
from maskwright.data.sources.arguments import Source
from maskwright.reporting.markdown import escape, without_html
from maskwright.reporting.table import Cell, Row, Table

CARD_VERSION = 1


@dataclass(frozen=True, slots=True)
class SourceCount:
    """All counts of one source: bytes of its files, what was read, dropped and kept, some sentences.

    `columns` are those of its tables that were read although the user named none, except "text", with the number of
    files.
    """

    source: Source
    bytes_on_disk: int
    counts: Counts = field(default_factory=Counts)
    kept: TextStatistics = field(default_factory=TextStatistics)
    examples: list[str] = field(default_factory=list)
    columns: Counter[str] = field(default_factory=Counter)


def data_card(sources: list[SourceCount], cleaning: Cleaning, fingerprint: str) -> dict[str, Any]:
    """Return the card as JSON-like data, per source and in total; independent of the time."""
    total_counts, total_kept = Counts(), TextStatistics()
    for source in sources:
        total_counts.add(source.counts)
        total_kept.add(source.kept)
    total_bytes = sum(source.bytes_on_disk for source in sources)
    return {
        "card": "maskwright clean corpus",
        "version": CARD_VERSION,
        "fingerprint": fingerprint,
        "total": {
            "files": sum(len(source.source.files) for source in sources),
            **_section(total_counts, total_kept, total_bytes),
        },
        "sources": [
            {
                "name": source.source.name,
                "kind": source.source.kind,
                "files": len(source.source.files),
                "passed_over": dict(source.source.ignored_files),
                **_section(source.counts, source.kept, source.bytes_on_disk),
                "examples": source.examples,
                "notes": _notes(source, cleaning),
                "remarks": _remarks(source),
            }
            for source in sources
        ],
        "cleaning": {**cleaning.model_dump(mode="json"), "exclude": [Path(name).name for name in cleaning.exclude]},
    }


_DROPPED: Mapping[str, Mapping[str, str]] = {
    "control characters and white space": {"characters": "removed_characters"},
    "paragraphs with evaluation text": {"paragraphs": "excluded_paragraphs", "characters": "excluded_characters"},
    "short documents": {"documents": "short_documents", "characters": "short_characters"},
    "repeated documents": {"documents": "repeated_documents", "characters": "repeated_document_characters"},
    "nearly repeated documents": {"documents": "near_documents", "characters": "near_document_characters"},
    "repeated paragraphs": {"paragraphs": "repeated_paragraphs", "characters": "repeated_paragraph_characters"},
    "documents too short without their repeated paragraphs": {
        "documents": "remnants",
        "characters": "remnant_characters",
    },
}
"""Reasons for which text is dropped: by unit the field of `Counts`."""


def _section(counts: Counts, kept: TextStatistics, bytes_on_disk: int) -> dict[str, Any]:
    return {
        "read": {
            "bytes_on_disk": bytes_on_disk,
            **{unit: getattr(counts, unit) for unit in ("documents", "paragraphs", "characters")},
        },
        "dropped": {
            reason: {unit: getattr(counts, field) for unit, field in fields.items()}
            for reason, fields in _DROPPED.items()
        },
        "bad_lines": {"count": counts.bad_lines, "first": counts.first_bad_lines},
        "kept": {
            **{unit: getattr(kept, unit) for unit in ("documents", "sentences", "characters")},
            "bytes": kept.num_bytes,
        },
        "scripts": kept.scripts(),
    }


def _notes(source: SourceCount, cleaning: Cleaning) -> list[str]:
    """Return remarks on unusual numbers."""
    notes = []
    kept, counts = source.kept, source.counts
    if kept.documents >= 20 and kept.sentences < 2.5 * kept.documents:
        notes.append(
            f"Documents are short: {kept.sentences / kept.documents:.1f} sentences on average. Objectives about the "
            "order of sentences need longer ones. If blank lines separate paragraphs in these files, not documents, "
            "say so with `--clean text_documents=files`."
        )
    if cleaning.line_breaks != "sentence" and kept.longest_sentence >= cleaning.max_sentence_characters:
        notes.append(
            f"Some text had no sentence end within {cleaning.max_sentence_characters:,} characters (logs, tables, "
            "lists of words?) and was cut there."
        )
    repeated = counts.repeated_document_characters + counts.near_document_characters
    if repeated + counts.repeated_paragraph_characters > 0.3 * counts.characters:
        notes.append("Over 30 % of the text was duplicated.")
    if counts.short_documents > 0.3 * counts.documents:
        notes.append(
            f"{100 * counts.short_documents / counts.documents:.0f} % of the documents are shorter than "
            f"{cleaning.min_document_bytes} bytes and were dropped (the limit is set with "
            f"`--clean min_document_bytes={cleaning.min_document_bytes}`)."
        )
    if source.source.ignored_files:
        others = ", ".join(f"{count} {suffix}" for suffix, count in source.source.ignored_files[:5])
        notes.append(f"Files that are not read: {others}.")
    return notes


def _remarks(source: SourceCount) -> list[str]:
    remarks = [column_remark(source)] if source.columns else []
    if source.counts.bad_lines:
        remarks.append(f"{pluralize(source.counts.bad_lines, 'broken line')} skipped")
    return remarks


def column_remark(source: SourceCount) -> str:
    """Say which columns hold the texts. In a file without a header line the name is a text."""
    shown = [repr(column if len(column) <= 60 else column[:57] + "...") for column in source.columns]
    some = "in some files, " * (source.columns.total() < len(source.source.files))
    return f"{some}texts from the column{'s' * (len(shown) > 1)} {listed(shown, 3)}"


def remarks(card: Mapping[str, Any]) -> list[str]:
    """Return what a user should know of each source before training on it: which column was read, broken lines."""
    return [f"{source['name']}: {remark}" for source in card["sources"] for remark in source.get("remarks", ())]


def source_rows(card: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what was kept of each source, from the content of data_card.json."""
    return [
        {"name": each["name"], "files": each["files"], **each["kept"], "read_characters": each["read"]["characters"]}
        for each in card["sources"]
    ]


def sources_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of `source_rows`, with a total if there are several; numbers that rows lack have no column."""
    if len(rows) > 1:
        rows = [*rows, {"name": "total", **{key: sum(row[key] for row in rows) for key in rows[0] if key != "name"}}]
    columns = [key for key in ("files", "documents", "sentences", "characters") if all(key in row for row in rows)]
    cells = [[row["name"], *(_number(row[column]) for column in columns)] for row in rows]
    if all("read_characters" in row for row in rows):
        columns.append("kept of what was read")
        for row, line in zip(rows, cells, strict=True):
            line.append(f"{100 * row['characters'] / max(1, row['read_characters']):.1f} %")
    return Table(("source", *columns), cells, right=range(1, 1 + len(columns)))


def card_page(card: dict[str, Any]) -> str:
    kept = card["total"]["kept"]
    lines = [
        "# Data card",
        "",
        f"**{_number(kept['documents'])} documents, {_number(kept['sentences'])} sentences, "
        f"{_number(kept['characters'])} characters** ({size_in_bytes(kept['bytes'])} of clean UTF-8) from "
        f"{pluralize(len(card['sources']), 'source')}. Fingerprint `{card['fingerprint']}`.",
        "",
        *sources_table(source_rows(card)).markdown(),
    ]
    for source in card["sources"]:
        lines += _source_page(source)
    settings = ", ".join(f"`{name}={value}`" for name, value in card["cleaning"].items())
    lines += [
        "",
        "## How it was cleaned",
        "",
        f"Settings of `--clean`: {settings}.",
        "",
        "Duplicates are exact, after cleaning, and the first occurrence is kept. Shares of scripts count letters only.",
        "",
    ]
    return "\n".join(lines)


def _source_page(source: dict[str, Any]) -> list[str]:
    units = ("documents", "paragraphs", "characters")
    rows: list[Row] = [("read", *(_number(source["read"][unit]) for unit in units))]
    for reason, dropped in source["dropped"].items():
        if any(dropped.values()):
            rows.append((reason, *(_number(-dropped[unit]) if dropped.get(unit) else "" for unit in units)))
    kept = source["kept"]
    rows.append(
        [Cell(cell, "strong") for cell in ("kept", _number(kept["documents"]), "", _number(kept["characters"]))]
    )
    lines = ["", f"## {escape(source['name'])}", "", *Table(("", *units), rows, right=(1, 2, 3)).markdown()]
    scripts = ", ".join(f"{name} {100 * share:.1f} %" for name, share in source["scripts"].items())
    lines += ["", f"Scripts: {scripts or 'no letters'}."]
    if source["examples"]:
        lines += ["", *"\n>\n".join(f"> {escape(example)}" for example in source["examples"]).split("\n")]
    if notes := [*map(escape, source.get("remarks", ())), *map(without_html, source["notes"])]:
        lines += ["", *(f"- {note}" for note in notes)]
    if source["bad_lines"]["first"]:
        lines += ["", "The first lines skipped:", "", *(f"- {escape(line)}" for line in source["bad_lines"]["first"])]
    return lines


def _number(value: int) -> str:
    return f"{value:,}".replace("-", "\u2212")
