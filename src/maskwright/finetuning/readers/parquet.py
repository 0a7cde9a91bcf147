"""Tables in Parquet, with the names of classes that Hugging Face's `datasets` keeps beside the numbers."""

import json
from pathlib import Path
from typing import Any

from maskwright.core.errors import DataError
from maskwright.finetuning.readers.loading import load_bytes
from maskwright.finetuning.readers.rows import Row, Table


def read_parquet(path: Path) -> Table:
    """Read a Parquet file whole; numbers of classes are replaced by their names where the file knows them.

    Raises:
        DataError: If it is missing or not Parquet.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(load_bytes(path)))
    except pyarrow.ArrowException as error:
        raise DataError(
            f"{path} is not a readable Parquet file: {str(error).splitlines()[0]}", todo="Write or download it again."
        ) from error
    names = _class_names(table.schema.metadata or {})
    columns = [
        _named(column.to_pylist(), names.get(name))
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    rows = tuple(Row(number, values) for number, values in enumerate(zip(*columns, strict=True), 1))
    notes = tuple(
        f"the classes of column {name!r} are named in the file" for name in table.column_names if name in names
    )
    return Table(name=str(path), columns=tuple(table.column_names), rows=rows, counted_in="record", notes=notes)


def _class_names(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    """Find columns of type ClassLabel, alone or in a list, in what `datasets` writes into a file's metadata."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    except (ValueError, AttributeError):
        return {}
    found = {}
    for name, feature in features.items():
        inner = feature.get("feature", feature) if isinstance(feature, dict) else {}
        if isinstance(inner, dict) and inner.get("_type") == "ClassLabel" and isinstance(inner.get("names"), list):
            found[str(name)] = [str(label) for label in inner["names"]]
    return found


def _named(values: list[Any], names: list[str] | None) -> list[Any]:
    if names is None:
        return values
    return [
        [_name(part, names) for part in value] if isinstance(value, list) else _name(value, names) for value in values
    ]


def _name(value: Any, names: list[str]) -> Any:
    # -1 is how `datasets` writes a missing label.
    if not isinstance(value, int):
        return value
    return names[value] if 0 <= value < len(names) else None
