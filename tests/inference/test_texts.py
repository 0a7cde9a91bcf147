"""Files of texts: lines or a column, with errors that name file and line."""

import gzip
import io
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskwright.core.errors import DataError
from maskwright.inference.texts import gather, read_source, read_texts, write_json_lines

_LINES = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))


def test_read_texts_gives_one_text_per_line_of_a_file_or_standard_input(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    data = "\ufeff我爱北京\r\n\nlast\x0bone\u2028still"
    (tmp_path / "texts.txt").write_bytes(data.encode())
    (tmp_path / "texts.txt.gz").write_bytes(gzip.compress(data.encode()))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data.encode())))
    for file in ("~/texts.txt", tmp_path / "texts.txt.gz", "-"):
        assert read_texts(file) == ["我爱北京", "", "last\x0bone\u2028still"]
    assert read_source(None, Path("~/texts.txt")) == data.removeprefix("\ufeff")


@settings(max_examples=30)
@given(texts=st.lists(_LINES, min_size=1).filter(lambda texts: any(text.strip() for text in texts)))
def test_written_json_lines_are_read_back(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    write_json_lines(file, ({"text": text, "other": 1} for text in texts))
    assert read_texts(file) == texts
    write_json_lines(file, texts)
    assert read_texts(file) == texts


def test_read_texts_reads_compressed_files(tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl.gz"
    file.write_bytes(gzip.compress(b'"one"\n\n{"text": "two"}\n'))
    assert read_texts(file) == ["one", "", "two"]


@pytest.mark.parametrize(
    "content",
    [
        '[{"text": "one", "id": 1}, {"text": "two"}]',
        '{"data": [{"text": "one"},\n{"text": "two"}]}',
        '["one",\n "two"]',
        '"one"\n"two"\n',
        '{"text": "one"}\n\n{"text": "two"}',
    ],
)
def test_read_texts_reads_json_lists_and_json_lines(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content, encoding="utf-8")
    assert read_texts(tmp_path / "a.json") == ["one", "two"]


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ","), ("a.tsv.gz", "\t"), ("a.parquet", "")])
def test_read_texts_reads_one_column_of_a_table(tmp_path: Path, name: str, mark: str) -> None:
    rows = {"id": ["1", "2", "3"], "text": ["the cat", "", "a, dog"], "note": ["x", "y", "z"]}
    if mark:
        lines = [mark.join(rows), *(mark.join(f'"{cell}"' for cell in row) for row in zip(*rows.values(), strict=True))]
        data = "\n".join(lines).encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    else:
        pq.write_table(pa.table(rows), tmp_path / name)
    columns: list[str] = []
    assert read_texts(tmp_path / name, on_column=columns.append) == rows["text"]
    assert read_texts(tmp_path / name, "note", columns.append) == rows["note"]
    assert columns == ["text", "note"]
    with pytest.raises(DataError, match=r"has no column 'nots'.*Did you mean 'note'"):
        read_texts(tmp_path / name, "nots")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", r"a\.txt contains no text"),
        ("a.txt", b"\n  \n", r"a\.txt contains no text"),
        ("a.txt", b"one\ncaf\xe9 here\n", r"a\.txt, line 2: not UTF-8.*iconv"),
        ("a.txt", "one\n".encode("utf-16"), r"a\.txt is UTF-16"),
        ("a.jsonl", b'"one"\n{"text": }\n', r"a\.jsonl, line 2: not JSON"),
        ("a.jsonl", b'{"a": "one", "b": "two"}\n', r"several columns could contain the text \(a, b\).*`--column a`"),
        ("a.jsonl", b'{"text": "one"}\n{"txt": "two"}\n', r"a\.jsonl, line 2: no field 'text'; found 'txt'"),
        ("a.csv", b"label,title,description\n1,a,b\n", r"several columns .*\(title, description\).*`--column title`"),
        ("a.csv", b'text\na\n"b\nc\n', r"a\.csv, line 3: not CSV"),
        ("a.csv", b"text,label\na,b,c\n", r"a\.csv, line 2: 3 columns where the header has 2"),
        ("a.jsonl", b'{"text": "one"}\n{"text": 3}\n', r"a\.jsonl, line 2: the field .text. is not a text but int"),
        ("a.jsonl", b"[1]", r"a\.jsonl, line 1: not a JSON object but list"),
        ("a.json", b'[{"text": "one"}, {"text": 3}]', r"a\.json, record 2: the field .text. is not a text but int"),
        ("a.json", b'["one", ', r"a\.json, line 1: not JSON.*whole"),
        ("a.txt.gz", b"no gzip", r"a\.txt\.gz is damaged"),
    ],
)
def test_read_texts_names_what_is_wrong(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_texts(tmp_path / name)


def test_read_texts_refuses_folders_missing_files_and_a_column_of_plain_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    with pytest.raises(DataError, match=r"a\.txt has no columns"):
        read_texts(tmp_path / "a.txt", "text")
    with pytest.raises(DataError, match="cannot read"):
        read_texts(tmp_path / "absent.txt")
    with pytest.raises(DataError, match="is a folder"):
        read_texts(tmp_path)


def test_gathered_texts_are_a_text_several_or_a_column_of_a_table() -> None:
    assert gather("one", None) == ["one"]
    assert gather(("one", "two"), None) == ["one", "two"]
    columns: list[str] = []
    for table in (pd.DataFrame({"id": [1], "body": ["one"]}), [{"id": 1, "body": "one"}]):
        assert gather(table, None, None, columns.append) == ["one"]
    assert columns == ["body", "body"]
    assert gather([{"a": "x y", "b": "z"}], None, "b") == ["z"]
    for wrong in (7, [7], ["one", {"text": "two"}], ["one", None]):
        with pytest.raises(DataError, match=r"the texts hold a .*a DataFrame"):
            gather(wrong, None)
