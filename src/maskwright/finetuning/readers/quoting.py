"""Whether double quotes in a table quote, or are characters of the text like any other."""

import re
from functools import cache

_FIELD = r'(?:"(?:[^"]|"")*+"|[^"{d}\r\n]*+)'


@cache
def _well_quoted(delimiter: str) -> re.Pattern[str]:
    # Every field that holds a quote begins and ends with one, and those inside are doubled. Possessive, so that a
    # file of any size is looked at once, without going back.
    field = _FIELD.replace("{d}", re.escape(delimiter))
    return re.compile(rf"(?:{field}(?:{re.escape(delimiter)}|\r\n?|\n|\Z))*+\Z")


@cache
def _quoted_fields(delimiter: str) -> re.Pattern[str]:
    edge = re.escape(delimiter)
    return re.compile(rf'(?<![^{edge}\r\n])"((?:[^"]|"")*+)"(?=[{edge}\r\n]|\Z)')


def quotes_quote(text: str, delimiter: str) -> bool:
    """Say whether a table's double quotes are those of CSV.

    They are if they are balanced as CSV has it, and, with tabs between the columns, if they were needed at least once
    (around a tab, a line end or a quote), or every field has them: `"Hello."` alone may be a sentence in quotes.

    Args:
        text: The whole file.
        delimiter: What stands between its columns.
    """
    if '"' not in text:
        return False
    if not _well_quoted(delimiter).match(text):
        return False
    if delimiter != "\t":
        return True
    fields = [match[1] for match in _quoted_fields(delimiter).finditer(text)]
    if any(mark in field for field in fields for mark in ('""', delimiter, "\n", "\r")):
        return True
    lines = [line for line in text.replace("\r", "\n").split("\n") if line]
    return len(fields) == sum(line.count(delimiter) + 1 for line in lines)
