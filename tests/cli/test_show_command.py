"""`maskwright show`: the options and what is printed where."""

import json

import pytest

from maskwright.data.tokenizers.spec import WordPiece
from maskwright.data.tokenizers.training import train_wordpiece

TEXT = "The cat sat on the mat. It was warm there. Nobody came.\n\nThe dog slept. It dreamt of the cat."


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    train_wordpiece(WordPiece(vocab_size=300), [TEXT] * 5, [TEXT] * 5).save(folder)
    return str(folder)


def test_show_prints_the_corrupted_text_and_notes_on_standard_error(run, tokenizer, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    code, out, err = run("show", "bert/tiny", "--text", TEXT, "--tokenizer", tokenizer)
    assert (code, err) == (0, "")
    assert all(part in out for part in ("bert/tiny", "[CLS]", "[MASK]{"))
    assert "\x1b" not in out
    _, _, err = run("show", "bert/tiny", "--text", "One. Two. Three.", "--tokenizer", tokenizer)
    assert "blank lines separate documents" in err


def test_show_reads_a_file_and_takes_overrides(run, tokenizer, tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    arguments = ("show", "bert/tiny", "--text-file", file, "--tokenizer", tokenizer, "--json", "--seed", "3")
    _, out, _ = run(*arguments, "--set", "masking.rate=0.5", "--set", "replacement={mask: 1, random: 0, keep: 0}")
    showing = json.loads(out)
    assert (showing["seed"], showing["recipe"]) == (3, "bert/tiny")
    tokens = [token for sequence in showing["sequences"] for token in sequence["tokens"]]
    assert {token["change"] for token in tokens} == {None, "masked"}
    assert sum(token["change"] is not None for token in tokens) > 0.4 * len(tokens)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bert/tiny",), "either as --text or as --text-file"),
        (("bert/tiny", "--text", " "), "the text to show is empty"),
        (("bert/tiny", "--text", "x", "--tokenizer", "/nowhere"), "/nowhere"),
    ],
)
def test_show_reports_errors_in_one_line(run, arguments, message):
    code, out, err = run("show", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
