"""What is printed arrives: JSON as UTF-8 on any pipe, tables without an error on any code page."""

import io
import json
import sys

import pytest

from maskwright.cli import output


def _pipe(monkeypatch: pytest.MonkeyPatch, encoding: str) -> io.BytesIO:
    """Make standard output a pipe that speaks an encoding."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    return written


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "ascii", "gbk"])
def test_print_json_writes_utf_8_whatever_the_pipe_speaks(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    written = _pipe(monkeypatch, encoding)
    value = {"token": "\u0120the \u5b57 \U0001f600", "file": "caf\udce9.txt"}
    print("before", flush=False)
    output.print_json(value)
    first, _, rest = written.getvalue().partition(b"\n")
    assert first == b"before"
    assert json.loads(rest.decode("utf-8")) == value
    assert "\u5b57" in rest.decode("utf-8")


def test_print_json_does_without_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    caught = io.StringIO()
    monkeypatch.setattr(sys, "stdout", caught)
    output.print_json(["\u5b57"])
    assert caught.getvalue() == '[\n  "\u5b57"\n]\n'


def test_table_on_a_code_page_shows_numbers_for_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    written = _pipe(monkeypatch, "cp1252")
    output.table(("token", "text"), [("\u0120the", "caf\u00e9 \u5b57")])
    sys.stdout.flush()
    assert "\\u0120the" in written.getvalue().decode("cp1252")
    assert "caf\u00e9 \\u5b57" in written.getvalue().decode("cp1252")
