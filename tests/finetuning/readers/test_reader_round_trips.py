"""What is written is what is read: tables of any texts, in every format of tables."""

import csv
import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import example, given, settings
from hypothesis import strategies as st

from maskwright.finetuning.readers import ReadOptions, read_texts

# Any text but half characters, which no file can hold.
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(lambda text: text.strip())
ONE_LINE = ANY_TEXT.filter(lambda text: not set(text) & set("\t\r\n") and not text.startswith("\ufeff"))
LABEL = st.sampled_from(["good", "bad", "schön", "好"])


def pairs_of(text: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[str, str, str]]]:
    return st.lists(st.tuples(text, text, LABEL), min_size=1, max_size=8)


NAMED = ReadOptions(text="one", text2="two", label="label")


def read_back(name: str, data: bytes, options: ReadOptions) -> list[tuple[str, ...]]:
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        file = read_texts(path, "classification", options)
    assert not file.skipped
    return [(*row.texts, str(row.label)) for row in file.examples]


def as_csv(rows: list[tuple[str, str, str]], delimiter: str, quoting: int = csv.QUOTE_MINIMAL) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, quoting=quoting)  # type: ignore[arg-type]
    writer.writerow(["one", "two", "label"])
    writer.writerows(rows)
    return out.getvalue().encode()


@given(pairs_of(ANY_TEXT))
@example([('"', "a", "good")])
@example([("a\r", "b\nc", "good")])
def test_csv_comes_back(rows: list[tuple[str, str, str]]) -> None:
    assert read_back("a.csv", as_csv(rows, ","), NAMED) == rows


@given(pairs_of(ANY_TEXT))
def test_quoted_tsv_comes_back(rows: list[tuple[str, str, str]]) -> None:
    assert read_back("a.tsv", as_csv(rows, "\t"), NAMED) == rows


@given(pairs_of(ANY_TEXT))
def test_csv_with_every_field_quoted_comes_back(rows: list[tuple[str, str, str]]) -> None:
    assert read_back("a.csv", as_csv(rows, ";", csv.QUOTE_ALL), NAMED) == rows


@given(pairs_of(ONE_LINE))
def test_unquoted_tsv_comes_back(rows: list[tuple[str, str, str]]) -> None:
    data = "".join("\t".join(row) + "\n" for row in [("one", "two", "label"), *rows]).encode()
    named = ReadOptions(text="one", text2="two", label="label", quoting="none")
    assert read_back("a.tsv", data, named) == rows


@given(pairs_of(ANY_TEXT), st.booleans())
def test_json_comes_back(rows: list[tuple[str, str, str]], ascii_only: bool) -> None:
    records = [dict(zip(("one", "two", "label"), row, strict=True)) for row in rows]
    lines = "\n".join(json.dumps(record, ensure_ascii=ascii_only) for record in records)
    assert read_back("a.jsonl", lines.encode(), NAMED) == rows
    assert read_back("a.json", json.dumps(records, ensure_ascii=ascii_only).encode(), NAMED) == rows


@given(pairs_of(ANY_TEXT))
@settings(deadline=None)  # The first table sets the library up.
def test_parquet_comes_back(rows: list[tuple[str, str, str]]) -> None:
    out = io.BytesIO()
    columns = dict(zip(("one", "two", "label"), map(list, zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table(columns), out)
    assert read_back("a.parquet", out.getvalue(), NAMED) == rows
