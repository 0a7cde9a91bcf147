"""Files of texts: read one per line from `.txt` or `.jsonl`, also compressed; read one whole text; write results."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from maskwright.core.errors import DataError
from maskwright.core.files import write_text
from maskwright.data.sources.files import COMPRESSIONS, decompressed, reading, refuse_utf_16, undecodable

TEXT_FIELD = "text"
_BOM = b"\xef\xbb\xbf"


def read_texts(path: Path | str) -> list[str]:
    """Read one text from each line of a file; blank lines are empty texts, so that line i stays text i.

    Args:
        path: A file of plain lines, or a `.jsonl` file of strings or of objects with a field "text", also
            compressed as `.gz` or `.zst`; "-" for plain lines from standard input.

    Raises:
        DataError: If there is no such file, it is empty, or a line of it is not UTF-8 or not such JSON.
    """
    if str(path) == "-":
        return _texts(sys.stdin.buffer, "standard input", is_json=False)
    path = Path(path).expanduser()
    if path.is_dir():
        raise DataError(f"{path} is a folder", allowed="a .txt or .jsonl file with one text per line")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = suffixes[-2:-1] if suffixes and suffixes[-1] in COMPRESSIONS else suffixes[-1:]
    with reading(path) as file:
        return _texts(decompressed(file, path), str(path), is_json=kind in ([".jsonl"], [".ndjson"]))


def _texts(lines: Iterable[bytes], name: str, *, is_json: bool) -> list[str]:
    texts = []
    for number, line in enumerate(lines, start=1):
        if number == 1:
            refuse_utf_16(line[:2], name)
            line = line.removeprefix(_BOM)
        try:
            text = line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            bad = undecodable(line, error, name, number)
            raise DataError(f"{bad.place}: {bad.problem}", todo=bad.todo or "Fix the line.") from error
        texts.append(_from_json(text, name, number) if is_json else text)
    if not any(text.strip() for text in texts):
        raise DataError(f"{name} contains no text", todo="Give a file with one text per line.")
    return texts


def _from_json(line: str, name: str, number: int) -> str:
    if not line.strip():
        return ""
    allowed = f'a string, or an object with a string field "{TEXT_FIELD}"'
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{name}, line {number}: not JSON ({error.msg} at character {error.pos + 1})", allowed=allowed
        ) from error
    if isinstance(value, dict):
        if TEXT_FIELD not in value:
            fields = ", ".join(map(repr, list(value)[:8])) or "none"
            raise DataError(f"{name}, line {number}: no field {TEXT_FIELD!r} (found: {fields})", allowed=allowed)
        value = value[TEXT_FIELD]
    if not isinstance(value, str):
        raise DataError(f"{name}, line {number}: found {type(value).__name__} instead of a text", allowed=allowed)
    return value


def write_json_lines(path: Path, values: Iterable[Any]) -> None:
    """Write a `.jsonl` file atomically, one value per line.

    Raises:
        DeviceError: If it cannot be written.
    """
    write_text(path, "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values))


def read_source(text: str | None, file: Path | None) -> str:
    """Return the text itself, or that of a file; "-" is standard input.

    Raises:
        DataError: If both or neither are given, or the file cannot be read as UTF-8.
    """
    if (text is None) == (file is None):
        raise DataError(
            "give the text to show either as --text or as --text-file",
            todo='For example `--text "The cat sat."`',
        )
    if text is not None:
        return text
    assert file is not None
    name = "standard input" if str(file) == "-" else str(file)
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.expanduser().read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror}", todo="Check the path.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8 text (byte {error.start})", todo="Save it as UTF-8.") from error
