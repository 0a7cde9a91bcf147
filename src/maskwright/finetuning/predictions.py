"""Predictions as a list, a DataFrame, or a file of JSON Lines, CSV or TSV."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskwright.core.errors import DataError
from maskwright.core.extras import imported
from maskwright.core.storage.files import check_writable, write_text
from maskwright.inference.texts import write_json_lines

if TYPE_CHECKING:  # PyTorch takes seconds to import, and names of files are checked before.
    from maskwright.finetuning.tasks.base import Prediction

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_JSON_LINES = (".jsonl", ".json", ".ndjson")


class Predictions(list["Prediction"]):
    """Predictions in the order of their inputs."""

    def to_pandas(self) -> Any:
        """Return a DataFrame with the columns "key", "input", "value", "score", "truncated" and "details".

        Raises DataError if pandas is not installed.
        """
        pandas = imported("pandas", "to_pandas()", "hub")
        columns = ("key", "input_text", "value", "score", "truncated", "details")
        rows = [[getattr(each, column) for column in columns] for each in self]
        return pandas.DataFrame(rows, columns=["key", "input", *columns[2:]])


def plain(prediction: "Prediction") -> dict[str, Any]:
    # Not `asdict`, whose deep copy takes longer than writing the file.
    return {name: getattr(prediction, name) for name in ("key", "value", "score", "truncated", "details")}


def check_output(path: Path) -> None:
    """Raise an error if predictions cannot be written to a file of this name; called before any work."""
    suffix = path.suffix.lower()
    if suffix not in (*_JSON_LINES, *_DELIMITERS):
        raise DataError(
            f"predictions are not written as {path.name!r}", allowed="a name that ends in .jsonl, .csv or .tsv"
        )
    check_writable(path.expanduser().parent)


def write_predictions(path: Path, predictions: Sequence["Prediction"]) -> None:
    """Write a file of predictions atomically, one per line: CSV or TSV by the file's name, else JSON Lines.

    CSV and TSV have the columns "key", "input" (in `maskwright.predict`), "value", "score" and "truncated"; a value of
    several classes or tags is joined by "|".
    """
    delimiter = _DELIMITERS.get(path.suffix.lower())
    if delimiter is None:
        write_json_lines(path, map(plain, predictions))
        return
    with_inputs = any(one.input_text for one in predictions)
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=delimiter, lineterminator="\n")
    writer.writerow(["key", *(["input"] if with_inputs else []), "value", "score", "truncated"])
    for one in predictions:
        value = "|".join(map(str, one.value)) if isinstance(one.value, list | tuple) else one.value
        writer.writerow([one.key, *([one.input_text] if with_inputs else []), value, one.score, one.truncated])
    write_text(path, buffer.getvalue())
