"""Any file of rows as a table."""

from pathlib import Path

from maskwright.finetuning.readers.delimited import read_delimited
from maskwright.finetuning.readers.json_records import read_json_records
from maskwright.finetuning.readers.loading import LoadedText, lines_of, load_text
from maskwright.finetuning.readers.options import Format, ReadOptions
from maskwright.finetuning.readers.parquet import read_parquet
from maskwright.finetuning.readers.rows import Row, Table
from maskwright.finetuning.readers.skips import Skips


def read_table(path: Path, format: Format, options: ReadOptions, skips: Skips) -> Table:
    """Read a file of rows.

    Args:
        path: The file.
        format: "csv", "tsv", "jsonl", "json", "parquet" or "text".
        options: How to read it.
        skips: Takes bad rows.

    Raises:
        DataError: If the file cannot be read, or holds no rows.
    """
    if format == "parquet":
        return read_parquet(path)
    loaded = load_text(path, options.encoding)
    match format:
        case "jsonl" | "json":
            return read_json_records(loaded, skips)
        case "text":
            return _lines_as_rows(loaded)
        case _:
            return read_delimited(loaded, options, skips)


def _lines_as_rows(loaded: LoadedText) -> Table:
    rows = tuple(Row(number, [line]) for number, line in enumerate(lines_of(loaded.text), 1) if line.strip())
    return Table(name=loaded.name, columns=("text",), rows=rows, notes=(*loaded.notes, "one text a line"))
