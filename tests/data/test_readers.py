"""Files of every kind to documents, whole, in order and in bounded pieces; broken ones are named by file and line."""

import gzip
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from maskwright.core.errors import DataError
from maskwright.data import files
from maskwright.data.cleaning.block import Counts, on_bad_line
from maskwright.data.cleaning.text import Cleaning
from maskwright.data.sources import readers
from maskwright.data.sources.arguments import resolve_sources
from maskwright.data.sources.markdown import strip_markdown
from maskwright.data.sources.readers import documents_of, raw_blocks

SKIP = Cleaning(bad_lines="skip")


def read(argument: Path | str, cleaning: Cleaning = Cleaning(), counts: Counts | None = None) -> list[str]:
    rule = on_bad_line(counts or Counts(), cleaning)
    blocks = raw_blocks(resolve_sources([argument]), cleaning.text_documents, [rule])
    return [text.strip() for block in blocks for piece in block.pieces for text in documents_of(piece, rule)]


def write(path: Path, data: bytes) -> Path:
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = zstandard.compress(data)
    path.write_bytes(data)
    return path


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BLOCK_BYTES", 64)
    monkeypatch.setattr(readers, "MAX_DOCUMENT_BYTES", 256)


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".TXT.zst"])
def test_blank_lines_separate_documents_of_text(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a{suffix}", b"\xef\xbb\xbfOne.\nStill one.\r\n\r\nTwo.\n  \t\n\nThree.")
    assert read(path) == ["One.\nStill one.", "Two.", "Three."]


@pytest.mark.parametrize("separator", ["\n\n", "\r\n\r\n", "\n \t\n", "\n\n\n\n"])
def test_pieces_end_where_documents_end(tmp_path: Path, small_blocks: None, separator: str) -> None:
    documents = [f"Document {number}, café.\nSecond line {'中' * (number % 23)}." for number in range(60)]
    path = write(tmp_path / "a.txt", separator.join(documents).encode())
    assert read(path) == documents


def test_document_longer_than_memory_should_hold_is_cut_at_a_line_end(tmp_path: Path, small_blocks: None) -> None:
    lines = [f"Line number {number}." for number in range(100)]
    path = write(tmp_path / "a.txt", "\n".join(lines).encode())
    blocks = list(raw_blocks(resolve_sources([path]), "auto", [on_bad_line(Counts(), Cleaning())]))
    pieces = [piece for block in blocks for piece in block.pieces]
    assert all(piece.size <= 256 + 64 for piece in pieces)
    texts = [text for piece in pieces for text in documents_of(piece, on_bad_line(Counts(), Cleaning()))]
    assert "".join(texts).split("\n") == lines
    assert [piece.first_line for piece in pieces][1] == texts[0].count("\n") + 1


WIKITEXT = (
    " \n = Robert <unk> = \n \n Robert is an actor . \n \n = = Career = = \n \n He was well @-@ known . \n"
    " \n = Second = \n \n 1 @,@ 000 . \n"
)


@pytest.mark.parametrize("name", ["wiki.tokens", "wiki.txt"])
def test_titles_separate_documents_of_wikitext(tmp_path: Path, name: str) -> None:
    first, second = read(write(tmp_path / name, WIKITEXT.encode()))
    assert [line.strip() for line in first.split("\n") if line.strip()] == [
        "Robert <unk>",
        "Robert is an actor .",
        "Career",
        "He was well-known .",
    ]
    assert second.endswith("1,000 .")
    assert len(read(tmp_path / name, Cleaning(text_documents="blank_lines"))) == 6


def jsonl(*records: object) -> bytes:
    return "\n".join(json.dumps(record, ensure_ascii=False) for record in records).encode()


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_json_lines_are_documents(tmp_path: Path, suffix: str) -> None:
    records = [{"text": "One."}, {"text": ["Two.", "More."]}, {"text": None}, {"text": "中"}, "A string."]
    assert read(write(tmp_path / f"a{suffix}", jsonl(*records))) == ["One.", "Two.\n\nMore.", "", "中", "A string."]


@pytest.mark.parametrize(
    ("record", "column"),
    [({"id": "7", "text": "x"}, "text"), ({"content": "x", "url": "y"}, "content"), ({"n": 1, "body": "x"}, "body")],
)
def test_text_column_is_found(tmp_path: Path, record: dict[str, object], column: str) -> None:
    assert read(write(tmp_path / "a.jsonl", jsonl(record))) == [record[column]]
    pq.write_table(pa.Table.from_pylist([record]), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [record[column]]
    lines = [",".join(record), ",".join(str(value) for value in record.values())]
    assert read(write(tmp_path / "a.csv", "\n".join(lines).encode())) == [record[column]]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_several_columns_of_text_need_a_choice(tmp_path: Path, suffix: str) -> None:
    path, record = tmp_path / f"a{suffix}", {"title": "x", "body": "y"}
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([record]), path)
    else:
        write(path, jsonl(record) if suffix == ".jsonl" else b"title,body\nx,y")
    with pytest.raises(DataError, match=r"title, body.*#title"):
        read(path)
    assert read(f"{path}#body") == ["y"]
    if suffix != ".jsonl":
        with pytest.raises(DataError, match=r"no column 'bdy'.*Did you mean 'body'"):
            read(f"{path}#bdy")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"text": "cut', r"not JSON \(column 14: Invalid control character\); it begins"),
        (b"[1]", "not a JSON object but list"),
        (b'{"txt": "x"}', "no field 'text'; found 'txt'"),
        (b'{"text": 7}', "not a text but int"),
        (b'{"text": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_broken_json_line_is_named_or_skipped(tmp_path: Path, line: bytes, says: str) -> None:
    path = write(tmp_path / "a.jsonl", b'{"text": "One."}\n\n' + line + b'\n{"text": "Two."}')
    with pytest.raises(DataError, match=rf"a\.jsonl, line 3: .*{says}.*`--clean bad_lines=skip`"):
        read(path)
    counts = Counts()
    assert read(path, SKIP, counts) == ["One.", "Two."]
    assert counts.bad_lines == 1
    assert "line 3" in counts.first_bad_lines[0]


def test_csv_row_with_an_unclosed_quote_is_named_or_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'text\nOne.\n"Two.\nThree.\nFour.')
    with pytest.raises(DataError, match=r"a\.csv, line 3: .*`--clean bad_lines=skip`"):
        read(path)
    counts = Counts()
    assert read(path, SKIP, counts) == ["One.", "Three.", "Four."]
    assert counts.bad_lines == 1


def test_csv_row_of_another_width_is_named_or_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"id,text\n1,One.\n2,Two.,more\n3,Three.")
    with pytest.raises(DataError, match=r"a\.csv, line 3: 3 columns where the header has 2"):
        read(path)
    counts = Counts()
    assert read(path, SKIP, counts) == ["One.", "Three."]
    assert counts.bad_lines == 1


def test_parquet_reads_lists_and_nulls(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([["One.", "Two."], None, []])}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == ["One.\n\nTwo.", "", ""]


@pytest.mark.parametrize("suffix", [".parquet", ".txt.zst"])
def test_without_pyarrow_the_extra_is_named(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    path = write(tmp_path / f"a{suffix}", b"anything")
    with pytest.raises(DataError, match=rf"reading .*a{suffix} needs the package pyarrow.*maskwright\[parquet\]"):
        read(path)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_truncated_and_damaged_archives_are_named(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a.txt{suffix}", bytes(range(1, 128)) * 4000)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"a\.txt\.\w+ is (truncated|damaged)"):
        read(path)
    path.write_bytes(b"plain text, not compressed at all")
    with pytest.raises(DataError, match=r"a\.txt\.\w+ is damaged"):
        read(path)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (
            "第一行。\n".encode() + "这是用国标编码的文字，很长的一行。\n".encode("gbk") * 20,
            r"line 2.*GBK.*iconv -f GB18030",
        ),
        (
            b"fine\n" + "Le café était fermé.\n".encode("latin-1"),
            r"line 2.*bytes e9.*byte 7 of the line.*WINDOWS-1252",
        ),
        ("Le café était fermé. Où ça ? À côté.\n".encode() * 50 + b"\xc3\x28\n", r"line 51.*damaged"),
        ("UTF-16 text\n".encode("utf-16"), r"is UTF-16.*iconv -f UTF-16"),
    ],
)
def test_text_that_is_not_utf_8_is_named_with_a_guess(tmp_path: Path, data: bytes, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read(write(tmp_path / "a.txt", data))


def test_broken_lines_of_text_are_skipped_and_counted(tmp_path: Path) -> None:
    counts = Counts()
    path = write(tmp_path / "a.txt", b"Good.\nBad \xff.\nGood again.\n\nBad \xfe too.\nEnd.")
    assert read(path, SKIP, counts) == ["Good.\nGood again.", "End."]
    assert counts.bad_lines == 2
    assert [line.split(":")[0].rpartition(" ")[2] for line in counts.first_bad_lines] == ["2", "5"]


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"text")
    sources = resolve_sources([path])
    path.unlink()
    with pytest.raises(DataError, match=r"cannot read .*a\.txt: No such file"):
        list(raw_blocks(sources, "auto", [on_bad_line(Counts(), Cleaning())]))


MARKDOWN = """---
title: Front matter
---
# A *heading* #

Some **bold** and _italic_ text, `code_span*` and a [link](http://x.org/a(b)), that
goes on.<!-- not this -->

```python
code = 1
```

* First item
  continued
2. Second [item][ref]

| a | b |
|---|---|
| 1 | 2 |

> Quoted &amp; escaped \\*stars\\*.

    indented_code()

Setext
======
![image](a.png) <b>Bold</b> end.[^1]

[ref]: http://x.org
"""


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
@pytest.mark.parametrize("size", [2_000, 100_000])
def test_lines_too_long_to_read_are_skipped_if_wanted(tmp_path, monkeypatch, name, size):
    for module in (files, readers):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(readers, "BLOCK_BYTES", 500)
    texts = ["One.", "x" * size, "Three.", "Four.", "y" * size]
    lines = [json.dumps({"text": text}) for text in texts] if name == "a.jsonl" else ["text", *texts]
    path, counts = write(tmp_path / name, "\n".join(lines).encode()), Counts()
    assert read(path, SKIP, counts) == ["One.", "Three.", "Four."]
    first = lines.index(next(line for line in lines if "xx" in line)) + 1
    assert counts.first_bad_lines == [f"{path}, line {n}: longer than 1,000 bytes" for n in (first, first + 3)]


def test_markdown_is_stripped_to_its_prose(tmp_path: Path) -> None:
    (text,) = read(write(tmp_path / "a.md", MARKDOWN.encode()))
    assert text.split("\n\n") == [
        "A heading",
        "Some bold and italic text, code_span* and a link, that goes on.",
        "First item continued",
        "Second item",
        "Quoted & escaped *stars*.",
        "Setext",
        "Bold end.",
    ]


@pytest.mark.parametrize(
    ("page", "prose"),
    [
        ("Use `<table>` or `<!--`.\n\nMore </table>.", ["Use <table> or <!--.", "More ."]),
        ("A <pre> tag\n\nand <!-- more.", ["A  tag", "and <!-- more."]),
        ("One\n```\n<script>\n````\nTwo", ["One", "Two"]),
        ("```<svg>``` begins\n\nand ends.", ["<svg> begins", "and ends."]),
        ("One ` two <!-- c -->\n\nthree `.", ["One ` two", "three `."]),
    ],
)
def test_html_without_an_end_or_in_code_does_not_hide_the_rest_of_a_page(page: str, prose: list[str]) -> None:
    assert strip_markdown(page).split("\n\n") == prose
