"""Printing: results to standard output, progress and errors to standard error, colored where that helps.

rich omits colors if the output is not a terminal or NO_COLOR is set.
"""

import io
import json
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from maskwright.reporting.console import SafeConsole
from maskwright.reporting.table import Cell, Row, Table

_WIDTH_WHEN_PIPED = 200


def console() -> Console:
    """Return the console for results, on standard output."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # Characters that a pipe's code page lacks (on Windows) are escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
    return _console(sys.stdout)


def stderr_console() -> Console:
    """Return the console for progress, notes and errors, on standard error."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    # A pipe has no width; rich would fold tables at 80 columns and break them for grep and cut.
    width = None if stream.isatty() or os.environ.get("COLUMNS") else _WIDTH_WHEN_PIPED
    return SafeConsole(file=stream, width=width, highlight=False)


def table(
    columns: Sequence[str],
    rows: Sequence[Row],
    *,
    title: str = "",
    right: Collection[int] = (),
    fixed: Collection[int] = (0,),
    merged: bool = False,
) -> None:
    """Print a table; without a header if all column names are empty."""
    show(Table(columns, rows, right, merged), title=title, fixed=fixed)


def show(table: Table, *, title: str = "", fixed: Collection[int] = (0,)) -> None:
    """Print a table; cells of the columns `fixed` are never wrapped."""
    console().print(table.terminal(title=title, fixed=fixed))


def show_split(table: Table, *, title: str = "") -> None:
    """Print a table of numbers without wrapping its cells: as several tables if it is too wide."""
    for part in table.split(console().width):
        show(part, title=title, fixed=range(len(part.columns)))
        title = ""


def heading(name: str, remark: str = "") -> None:
    """Print a title, a name and a remark, never wrapped."""
    console().print(Text.assemble((name, "bold"), (f"  {remark}" if remark else "", "dim")), soft_wrap=True)


def strong(text: str) -> Cell:
    return Cell(text, "strong")


def faint(text: str) -> Cell:
    return Cell(text, "faint")


def print_json(value: Any) -> None:
    """Print a JSON-like value on standard output, indented, in UTF-8; numbers that are not finite become null."""
    value = json.loads(json.dumps(value), parse_constant=lambda _: None)  # JSON has no NaN.
    # JSON is UTF-8, but a pipe on Windows uses an old code page. Lone surrogates, which file names may contain, become
    # JSON escapes (\udc80), the format of backslashreplace.
    # So do control characters that JSON allows (from 0x7F).
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    text = text.translate({code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)})
    data = text.encode("utf-8", "backslashreplace")
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:  # a notebook's output, or one caught in a StringIO
        sys.stdout.write(data.decode())
        return
    sys.stdout.flush()
    binary.write(data)
    binary.flush()


def note(text: str) -> None:
    """Print a note on standard error."""
    stderr_console().print(Text(text, style="dim"), soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning on standard error."""
    stderr_console().print(Text.assemble(("warning: ", "bold yellow"), text), soft_wrap=True)


def fail(text: str) -> None:
    """Print an error as one line on standard error."""
    stderr_console().print(Text.assemble(("error: ", "bold red"), (text, "red")), soft_wrap=True)
