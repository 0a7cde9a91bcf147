"""Round trips of tables of any texts, in every format of tables."""

import csv
import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from maskwright.finetuning.readers.options import ReadOptions
from maskwright.finetuning.readers.texts import read_texts

Rows = list[tuple[str, str, str]]
COLUMNS = ("one", "two", "label")
# Any text but lone surrogates, which no file can hold.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(lambda text: text.strip())
ROWS = st.lists(st.tuples(TEXT, TEXT, st.sampled_from(["good", "bad", "schön", "好"])), min_size=1, max_size=8)


def as_csv(rows, delimiter=",", quoting=csv.QUOTE_MINIMAL):
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, quoting=quoting)
    writer.writerows([COLUMNS, *rows])
    return out.getvalue().encode()


def as_parquet(rows):
    out = io.BytesIO()
    pq.write_table(pa.table(dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))), out)
    return out.getvalue()


def as_records(rows):
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def read_back(name, data, quoting=None):
    options = ReadOptions(text="one", text2="two", label="label", quoting=quoting)
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        file = read_texts(path, "classification", options)
    assert not file.skipped
    return [(row.texts[0], row.texts[1], str(row.label)) for row in file.examples]


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.csv", as_csv),
        ("a.tsv", lambda rows: as_csv(rows, "\t")),
        ("a.csv", lambda rows: as_csv(rows, ";", csv.QUOTE_ALL)),
        ("a.jsonl", lambda rows: "\n".join(map(json.dumps, as_records(rows))).encode()),
        ("a.json", lambda rows: json.dumps(as_records(rows), ensure_ascii=False).encode()),
        ("a.parquet", as_parquet),
    ],
    ids=["csv", "tsv", "all quoted", "json lines", "json list", "parquet"],
)
@given(rows=ROWS)
@example(rows=[('"', "a", "good")])
@example(rows=[("a\r", "b\nc", "good")])
@settings(max_examples=30)  # the first table of Parquet sets the library up
def test_tables_come_back(name, write, rows):
    assert read_back(name, write(rows)) == rows


@given(rows=ROWS.filter(lambda rows: not any(set(text) & set("\t\r\n\ufeff") for row in rows for text in row)))
def test_unquoted_tsv_comes_back(rows):
    lines = ["\t".join(row) for row in (COLUMNS, *rows)]
    assert read_back("a.tsv", "".join(line + "\n" for line in lines).encode(), "none") == rows
