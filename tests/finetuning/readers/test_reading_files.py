"""Files as text: found, decompressed and decoded."""

import gzip

import pytest

from maskwright.core.errors import DataError
from maskwright.finetuning.readers.files import lines_of, load_text

CHINESE = "text,label\n" + "".join(f"这家酒店的服务态度非常好第{n}次,好\n她不喜欢这本书，{n},坏\n" for n in range(20))


@pytest.mark.parametrize(
    ("data", "encoding", "text"),
    [
        ("\ufeffGröße".encode(), None, "Größe"),
        ("Größe".encode("utf-16"), None, "Größe"),
        (b"\xfe\xff" + "Größe".encode("utf-16-be"), None, "Größe"),
        (CHINESE.encode("gbk"), "gbk", CHINESE),
    ],
    ids=["utf-8 mark", "utf-16 little", "utf-16 big", "named"],
)
def test_encodings(data, encoding, text, tmp_path):
    (tmp_path / "a.txt").write_bytes(data)
    assert load_text(tmp_path / "a.txt", encoding) == text


@pytest.mark.parametrize(
    ("data", "encoding", "message"),
    [
        (b"fine\n" + CHINESE.encode("gbk"), None, r"a\.txt, line 3: not UTF-8.*GB18030.*--read encoding="),
        (b"\xff\xfeabc", None, r"a\.txt is not utf-16"),
        (CHINESE.encode(), "gkb", "unknown encoding 'gkb'"),
        (CHINESE.encode(), "ascii", r"a\.txt is not ascii"),
    ],
)
def test_other_bytes_are_refused(data, encoding, message, tmp_path):
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(DataError, match=message):
        load_text(tmp_path / "a.txt", encoding)


def test_lines_end_at_line_feeds_only():
    assert lines_of("a\x0b\x0c\x1c\x85\u2028b\r\nc\n\nd") == ["a\x0b\x0c\x1c\x85\u2028b", "c", "", "d"]
    assert lines_of("a\rb\nc\n") == ["a\rb", "c"]


def test_missing_files_empty_files_and_folders_are_refused(tmp_path):
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
