"""Files as text: found, unpacked and decoded, with every guess said."""

import gzip
from pathlib import Path

import pytest
import zstandard

from maskwright.core.errors import DataError
from maskwright.finetuning.readers.files import lines_of, load_text
from maskwright.finetuning.readers.texts import read_texts

CHINESE = "text,label\n" + "".join(f"这家酒店的服务态度非常好第{n}次,好\n她不喜欢这本书，{n},坏\n" for n in range(20))


@pytest.mark.parametrize(
    ("name", "pack"), [("a.txt", bytes), ("a.txt.gz", gzip.compress), ("a.TXT.zst", zstandard.compress)]
)
def test_files_are_unpacked(tmp_path: Path, name: str, pack: type[bytes]) -> None:
    (tmp_path / name).write_bytes(pack("Größe 😀\n".encode()))
    loaded = load_text(tmp_path / name)
    assert (loaded.text, loaded.suffix, loaded.notes) == ("Größe 😀\n", ".txt", ())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("﻿Größe".encode(), ""),
        ("Größe".encode("utf-16"), "UTF-16"),
        (b"\xfe\xff" + "Größe".encode("utf-16-be"), "UTF-16"),
    ],
    ids=["utf-8 mark", "utf-16 little", "utf-16 big"],
)
def test_byte_order_marks_say_the_encoding(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    loaded = load_text(tmp_path / "a.txt")
    assert loaded.text == "Größe"
    assert said in " ".join(loaded.notes)
    assert bool(loaded.notes) == bool(said)


@pytest.mark.parametrize(
    ("text", "codec", "said"),
    [
        (CHINESE, "gb18030", "GBK (GB18030)"),
        ("Straße und Café\n" * 9, "cp1252", "Windows-1252"),
        ("資料夾裡的檔案都不見了\n" * 9, "big5", "Big5"),
    ],
)
def test_other_encodings_are_guessed_and_said(tmp_path: Path, text: str, codec: str, said: str) -> None:
    (tmp_path / "a.txt").write_bytes(text.encode(codec))
    loaded = load_text(tmp_path / "a.txt")
    assert loaded.text == text
    assert said in loaded.notes[0]
    assert "name the encoding if that is wrong" in loaded.notes[0]


def test_named_encoding_is_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(CHINESE.encode("gbk"))
    loaded = load_text(tmp_path / "a.txt", "gbk")
    assert (loaded.text, loaded.notes) == (CHINESE, ())
    with pytest.raises(DataError, match="unknown encoding 'gkb'"):
        load_text(tmp_path / "a.txt", "gkb")
    with pytest.raises(DataError, match="is not ascii"):
        load_text(tmp_path / "a.txt", "ascii")


def test_utf_16_without_a_mark_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("plain English".encode("utf-16-le"))
    with pytest.raises(DataError, match=r"looks like UTF-16 without a byte order mark\. Name its encoding"):
        load_text(tmp_path / "a.txt")


def test_unrecognised_bytes_are_refused_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"fine\n" + b"\x81\x8d\x8f\x90 \x9d" * 30)
    with pytest.raises(DataError, match=r"a\.txt, line 2: not UTF-8"):
        load_text(tmp_path / "a.txt")


def test_single_damaged_bytes_cost_only_their_rows(tmp_path: Path) -> None:
    rows = [f"Größe und Länge der Straße Nummer {n},gut\n".encode() for n in range(40)]
    rows[7] = rows[7].replace(b"L\xc3\xa4nge", b"L\xc3nge")
    (tmp_path / "a.csv").write_bytes(b"text,label\n" + b"".join(rows))
    file = read_texts(tmp_path / "a.csv", "classification")
    assert len(file.examples) == 39
    assert [(skip.place.rpartition("/")[2], skip.reason.split(" at ")[0]) for skip in file.skipped] == [
        ("a.csv, line 9", "half a character")
    ]
    assert "damaged UTF-8 from line 9 on" in file.notes


def test_control_characters_are_kept_and_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntw\x08o\x12\n")
    loaded = load_text(tmp_path / "a.txt")
    assert loaded.text == "one\ntw\x08o\x12\n"
    assert loaded.notes == ("control characters are kept: 2 (\\x08, \\x12), the first in line 2",)


def test_lines_end_at_line_feeds_only() -> None:
    assert lines_of("a\x0b\x0c\x1c\x85\u2028b\r\nc\n\nd") == ["a\x0b\x0c\x1c\x85\u2028b", "c", "", "d"]
    assert lines_of("a\rb\r") == ["a", "b"]
    assert lines_of("a\n") == ["a"]
    assert lines_of("a\rb\nc") == ["a\rb", "c"]


def test_missing_files_empty_files_and_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\n")
    (tmp_path / "empty.csv").write_text(" \n")
    with pytest.raises(DataError, match=r"no such file: .*trian\.csv\. Did you mean '.*train\.csv'"):
        load_text(tmp_path / "trian.csv")
    with pytest.raises(DataError, match=r"The folder .*nowhere does not exist either"):
        load_text(tmp_path / "nowhere" / "train.csv")
    with pytest.raises(DataError, match=r"is a folder, not a file; it holds empty\.csv, train\.csv"):
        load_text(tmp_path)
    with pytest.raises(DataError, match=r"empty\.csv is empty"):
        load_text(tmp_path / "empty.csv")
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(b"text" * 99)[:-9])
    with pytest.raises(DataError, match=r"cut\.txt\.gz is cut short"):
        load_text(tmp_path / "cut.txt.gz")


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        (
            "a.xlsx",
            b"PK\x03\x04" + bytes(range(256)),
            r"a\.xlsx is a spreadsheet or a zip archive.*Export .* CSV \(UTF-8\)",
        ),
        ("a.csv", b"PK\x03\x04" + bytes(99), r"a\.csv is a spreadsheet or a zip archive, not text"),
        (
            "a.csv",
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99),
            r"a spreadsheet or another document of Microsoft Office",
        ),
        ("a.txt", b"%PDF-1.7\n", r"a\.txt is a PDF, not text"),
        (
            "a.csv",
            gzip.compress(b"text,label\n", mtime=0),
            r"compressed by gzip, not text\. .* end its name in \.gz",
        ),
        ("a.csv", zstandard.compress(b"text,label\n"), r"compressed by Zstandard.*end its name in \.zst"),
    ],
)
def test_spreadsheets_and_other_files_of_no_text_are_refused_by_name(
    tmp_path: Path, name: str, data: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=said):
        read_texts(tmp_path / name, "classification")
