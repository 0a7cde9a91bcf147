"""Files as text: found, decompressed and decoded, with every guess in the notes."""

import gzip
from pathlib import Path

import pytest

from maskwright.core.errors import DataError
from maskwright.finetuning.readers.files import decode, lines_of, load_text
from maskwright.finetuning.readers.texts import read_texts

CHINESE = "text,label\n" + "".join(f"这家酒店的服务态度非常好第{n}次,好\n她不喜欢这本书，{n},坏\n" for n in range(20))


@pytest.mark.parametrize(
    ("data", "text", "note"),
    [
        ("\ufeffGröße".encode(), "Größe", ""),
        ("Größe".encode("utf-16"), "Größe", "UTF-16"),
        (b"\xfe\xff" + "Größe".encode("utf-16-be"), "Größe", "UTF-16"),
        (CHINESE.encode("gb18030"), CHINESE, "GBK (GB18030)"),
        (("Straße und Café\n" * 9).encode("cp1252"), "Straße und Café\n" * 9, "Windows-1252"),
        (("資料夾裡的檔案都不見了\n" * 9).encode("big5"), "資料夾裡的檔案都不見了\n" * 9, "Big5"),
    ],
    ids=["utf-8 mark", "utf-16 little", "utf-16 big", "gbk", "windows-1252", "big5"],
)
def test_encodings_are_recognized_and_noted(data: bytes, text: str, note: str) -> None:
    found, notes = decode(data, "a.txt")
    assert found == text
    assert note in " ".join(notes)
    assert bool(notes) == bool(note)


def test_named_encoding_is_not_guessed() -> None:
    data = CHINESE.encode("gbk")
    assert decode(data, "a.txt", "gbk") == (CHINESE, ())
    with pytest.raises(DataError, match="unknown encoding 'gkb'"):
        decode(data, "a.txt", "gkb")
    with pytest.raises(DataError, match=r"a\.txt is not ascii"):
        decode(data, "a.txt", "ascii")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("plain English".encode("utf-16-le"), r"many NUL bytes.*name its encoding"),
        (b"fine\n" + b"\x81\x8d\x8f\x90 \x9d" * 30, r"a\.txt, line 2: not UTF-8"),
    ],
)
def test_unrecognized_bytes_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        decode(data, "a.txt")


def test_damaged_bytes_cost_only_their_rows(tmp_path: Path) -> None:
    rows = [f"Größe und Länge der Straße Nummer {n},gut\n".encode() for n in range(40)]
    rows[7] = rows[7].replace(b"L\xc3\xa4nge", b"L\xc3nge")
    (tmp_path / "a.csv").write_bytes(b"text,label\n" + b"".join(rows))
    file = read_texts(tmp_path / "a.csv", "classification")
    assert len(file.examples) == 39
    assert [skip.place for skip in file.skipped] == [f"{tmp_path}/a.csv, line 9"]
    assert "damaged UTF-8 from line 9 on" in file.notes


def test_lines_end_at_line_feeds_only() -> None:
    assert lines_of("a\x0b\x0c\x1c\x85\u2028b\r\nc\n\nd") == ["a\x0b\x0c\x1c\x85\u2028b", "c", "", "d"]
    assert lines_of("a\rb\r") == ["a", "b"]
    assert lines_of("a\n") == ["a"]
    assert lines_of("a\rb\nc") == ["a\rb", "c"]


def test_missing_files_empty_files_and_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\n")
    (tmp_path / "empty.csv").write_text(" \n")
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(b"text" * 99)[:-9])
    for name, message in (
        ("trian.csv", r"no such file: .*trian\.csv\. Did you mean '.*train\.csv'"),
        ("nowhere/train.csv", r"The folder .*nowhere does not exist either"),
        ("", "is a folder, not a file"),
        ("empty.csv", r"empty\.csv is empty"),
        ("cut.txt.gz", r"cut\.txt\.gz is truncated"),
    ):
        with pytest.raises(DataError, match=message):
            load_text(tmp_path / name)
