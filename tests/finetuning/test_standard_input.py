"""Standard input: decoded as files are, keys are line numbers."""

import io
from pathlib import Path

import pytest
from test_finetuning import Heard

from maskwright.core.errors import DataError
from maskwright.finetuning.fine_tuned import build
from maskwright.finetuning.predicting import predict, read_standard_input
from maskwright.finetuning.tasks.question_answering import QuestionAnswering
from maskwright.finetuning.tasks.texts import Classification
from maskwright.training.reporting import Silent


def _given(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    # As a terminal's: what is no UTF-8 becomes lone surrogates where it is read as text.
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors="surrogateescape"))


@pytest.mark.parametrize(
    ("data", "lines", "said"),
    [
        (b"one\ntwo\r\n", [(1, "one"), (2, "two")], ()),
        ("\ufeff我\n".encode(), [(1, "我")], ()),
        (b"\none\n \n\ntwo", [(2, "one"), (5, "two")], ("3 blank lines skipped",)),
        (b"good\n\nbad\n", [(1, "good"), (3, "bad")], ("1 blank line skipped",)),
        (b"one\nsch\xf6n\n", [(1, "one"), (2, "schön")], ("not UTF-8 (line 2)",)),
        (
            "我爱北京，他们都很好。\n".encode("gb18030"),
            [(1, "我爱北京，他们都很好。")],
            ("not UTF-8 (line 1)",),
        ),
        ("one\n".encode("utf-16"), [(1, "one")], ("UTF-16, by its byte order mark",)),
        (b"", [], ()),
    ],
)
def test_lines_are_counted_and_decoded(
    monkeypatch: pytest.MonkeyPatch, data: bytes, lines: list[tuple[int, str]], said: tuple[str, ...]
) -> None:
    _given(monkeypatch, data)
    found, notes = read_standard_input()
    assert found == lines
    assert len(notes) == len(said)
    assert all(note.startswith(begin) for note, begin in zip(notes, said, strict=True))


def test_damaged_bytes_are_refused_with_their_line(monkeypatch: pytest.MonkeyPatch, bert_folder: Path) -> None:
    model = build(bert_folder, Classification(labels=("a", "b")), seed=3, max_length=32)
    _given(monkeypatch, "schön, täglich, größer\n".encode() * 3 + b"\xff\xfe\n")
    with pytest.raises(DataError, match="standard input, line 4: lone surrogate at position 1"):
        predict(model, file="-", reporter=Silent())


def test_an_encoding_can_be_named(monkeypatch: pytest.MonkeyPatch, bert_folder: Path) -> None:
    model = build(bert_folder, Classification(labels=("a", "b")), seed=3, max_length=32)
    _given(monkeypatch, "schön\n".encode("utf-16-le"))
    [one] = predict(model, file="-", read=["encoding=utf-16-le"], reporter=Silent())
    assert one.input_text == "schön"


def test_keys_of_predictions_are_line_numbers(
    monkeypatch: pytest.MonkeyPatch, bert_folder: Path, tmp_path: Path
) -> None:
    model = build(bert_folder, Classification(labels=("a", "b")), seed=3, max_length=32)
    file = tmp_path / "texts.csv"
    file.write_text("id,text\n7,the dog\n", encoding="utf-8")
    _given(monkeypatch, b"\xef\xbb\xbfthe cat\n\nsch\xf6n\n")
    talk = Heard()
    said = predict(model, "a word", file=["-", file], reporter=talk)
    called = {"input:1": "a word", "standard input:1": "the cat", "standard input:3": "schön"}
    called["texts.csv:7"] = "the dog"
    assert [(one.key, one.input_text) for one in said] == list(called.items())
    assert "file 2 examples from standard input" in talk.text()
    assert "1 blank line skipped" in talk.text()
    _given(monkeypatch, b"the cat\n\nthe dog\n")
    assert [one.key for one in predict(model, file=["-", file], reporter=Silent())] == ["1", "3", "7"]
    file.write_text("text\nthe dog\n", encoding="utf-8")
    said = predict(model, ["a word", "a cat"], file=file, reporter=Silent())
    assert [one.key for one in said] == ["input:1", "input:2", "texts.csv:2"]
    _given(monkeypatch, b"\n")
    with pytest.raises(DataError, match="nothing was given"):
        predict(model, file="-", reporter=Silent())


def test_errors_name_the_line(monkeypatch: pytest.MonkeyPatch, bert_folder: Path) -> None:
    _given(monkeypatch, b"\nwho ?\n")
    model = build(bert_folder, QuestionAnswering(), seed=3, max_length=32)
    with pytest.raises(DataError, match="standard input, line 2 is not what a model for question_answering takes"):
        predict(model, file="-", reporter=Silent())
