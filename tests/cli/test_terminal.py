"""Escape sequences in texts, file names and models never reach the terminal."""

import json

import pytest

from maskwright.cli import output
from maskwright.reporting.console import ConsoleReporter
from maskwright.reporting.table import Table

# Clipboard (OSC 52), title, colors, cursor; BEL, backspace, DEL, and the one-byte CSI and OSC.
HOSTILE = "a\x1b]52;c;ZXZpbA==\x07b\x1b]0;title\x1b\\c\x1b[31m\x1b[2Jd\x08\x7f\x9b31m\x9d0;e\x9c\r"


def is_safe(text):
    return not any((ord(character) < 32 and character != "\n") or 0x7F <= ord(character) < 0xA0 for character in text)


@pytest.mark.parametrize(
    "message",
    [
        lambda: output.table(("name", HOSTILE), [(HOSTILE, output.strong(HOSTILE))], title=HOSTILE),
        lambda: output.heading(HOSTILE, HOSTILE),
        lambda: output.note(HOSTILE),
        lambda: output.warn(HOSTILE),
        lambda: output.fail(HOSTILE),
        lambda: output.print_json({HOSTILE: [HOSTILE]}),
        lambda: ConsoleReporter().message(HOSTILE, HOSTILE),
        lambda: ConsoleReporter().table("files", Table((HOSTILE,), [(HOSTILE,)])),
    ],
)
def test_nothing_that_is_printed_contains_escapes(capsys, message):
    message()
    printed = "".join(capsys.readouterr())
    assert "]52;c;ZXZpbA==" in printed
    assert is_safe(printed)


def test_json_keeps_the_characters(capsys):
    output.print_json(HOSTILE)
    assert json.loads(capsys.readouterr().out) == HOSTILE


@pytest.mark.parametrize("command", ["fill-mask", "detect", "embed"])
def test_commands_print_texts_without_escapes(run, bert_folder, electra_folder, command):
    folder = electra_folder if command == "detect" else bert_folder
    code, out, err = run(command, folder, f"the [MASK] {HOSTILE}", f"a cat [MASK] {HOSTILE}")
    assert code == 0, err
    assert "\u241b" in out
    assert is_safe(out + err)


def test_errors_name_paths_without_escapes(run, tmp_path):
    code, out, err = run("embed", "model", "--file", tmp_path / HOSTILE)
    assert (code, out) == (2, "")
    assert "\u241b]52" in err
    assert is_safe(err)
