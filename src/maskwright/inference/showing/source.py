"""Where the text to show comes from."""

import sys
from pathlib import Path

from maskwright.core.errors import DataError


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
