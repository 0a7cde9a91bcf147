"""Tables in memory become rows of plain values, whatever library holds them."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maskwright.core.errors import DataError
from maskwright.data import tables
from maskwright.data.files import BadLine, refuse_line
from maskwright.data.tables import column_texts, delimited_rows, records_of, text_column, usual_text_column
from maskwright.inference.texts import read_texts

ROWS = [{"text": "a", "label": "x"}, {"text": "b", "label": None}]


def dataset(*args: Any, **changes: Any) -> Any:
    with warnings.catch_warnings(action="ignore"):
        import datasets
    return datasets.Dataset.from_list(*args, **changes)


@pytest.mark.parametrize("make", [list, pd.DataFrame, pa.Table.from_pylist, dataset])
def test_tables_in_memory_are_records(make: Any) -> None:
    records = records_of(make(ROWS), "train")
    assert records.columns == ("text", "label")
    assert list(records.rows) == ROWS
    assert [row.key for row in records.numbered()] == ["1", "2"]


def test_missing_numbers_and_arrays_of_a_dataframe_are_plain_values() -> None:
    frame = pd.DataFrame({0: [1.0, np.nan], "n": np.array([1, 2]), "tokens": [np.array(["a", "b"]), np.array(["c"])]})
    records = records_of(frame, "train")
    assert list(records.rows) == [
        {"0": 1.0, "n": 1, "tokens": ["a", "b"]},
        {"0": None, "n": 2, "tokens": ["c"]},
    ]
    assert type(records.rows[0]["n"]) is int


def test_class_labels_of_a_dataset_are_names() -> None:
    with warnings.catch_warnings(action="ignore"):
        from datasets import ClassLabel, Features, List, Value

    names = ClassLabel(names=["O", "B-PER"])
    features = Features({"tokens": List(Value("string")), "ner_tags": List(names), "label": names})
    rows = [{"tokens": ["Ada", "ran"], "ner_tags": [1, 0], "label": 1}, {"tokens": [], "ner_tags": [], "label": -1}]
    records = records_of(dataset(rows, features=features), "train")
    assert [(row["ner_tags"], row["label"]) for row in records.rows] == [(["B-PER", "O"], "B-PER"), ([], None)]


def test_what_is_no_single_table_is_refused_or_left_to_the_caller() -> None:
    assert records_of("a.csv", "train") is None
    assert records_of(["a.csv"], "train") is None
    assert records_of([], "train") is None
    with pytest.raises(DataError, match=r"holds the splits train, test.*\['train'\]"):
        records_of({"train": dataset(ROWS), "test": dataset(ROWS)}, "train")
    for table in (pd.DataFrame([[1, 2]], columns=["a", "a"]), pa.table([[1], [2]], names=["a", "a"])):
        with pytest.raises(DataError, match="several columns 'a'"):
            records_of(table, "train")


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
@pytest.mark.parametrize("column", [None, "text"])
def test_a_column_of_texts_that_occurs_twice_is_refused(tmp_path: Path, name: str, column: str | None) -> None:
    (path := tmp_path / name).write_text("text,id,id,text\na,1,2,b\n")
    if name == "a.parquet":
        pq.write_table(pa.table([["a"], ["1"], ["2"], ["b"]], names=["text", "id", "id", "text"]), path)
    with pytest.raises(DataError, match=rf"{name} has several columns 'text'"):
        read_texts(path, column)


@pytest.mark.parametrize("line", ["id;text|more", "id\ttext, more"])
def test_a_tab_is_the_delimiter_before_more_frequent_marks(line: str) -> None:
    columns, _ = delimited_rows([line], "a", refuse_line)
    assert columns[0] == "id"


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize(
    ("lines", "bad"),
    [
        (["a", '"b', "c", "d"], [3]),
        (["a", '"b', "c", 'said "x" to'], [3]),
        (["a", "b", '"c'], [4]),
        (['"a', '"b', "c", '"d'], [2, 3, 5]),
        (['"a', 'b"', "c", '"d'], [5]),
    ],
)
def test_only_the_line_of_an_unclosed_quote_is_lost(lines: list[str], bad: list[int], end: str) -> None:
    skipped: list[str] = []
    text = "\n".join(["text", *lines]) + end
    _, rows = delimited_rows(text.splitlines(keepends=True), "a.csv", lambda line: skipped.append(line.location))
    kept = [row.cells["text"] for row in rows]
    assert skipped == [f"a.csv, line {number}" for number in bad]
    assert [part for text in kept for part in str(text).split("\n")] == [
        line.strip('"') for number, line in enumerate(lines, 2) if number not in bad
    ]


def test_misplaced_quotes_of_one_line_are_read_unless_strict() -> None:
    lines = ["text\tid\n", '"a "great" film\t1\n', '"so" it goes\t2\n']
    _, rows = delimited_rows(lines, "a.tsv", refuse_line)
    assert [row.cells["id"] for row in rows] == ["1", "2"]
    skipped: list[str] = []
    _, rows = delimited_rows(lines, "a.tsv", lambda line: skipped.append(line.location), strict=True)
    assert not list(rows)
    assert skipped == ["a.tsv, line 2", "a.tsv, line 3"]


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.jsonl"])
def test_line_ends_may_be_carriage_returns_alone(tmp_path: Path, name: str) -> None:
    lines = {"a.csv": ["text,id", "one,1", "two,2"], "a.txt": ["one", "two"], "a.jsonl": ['"one"', '"two"']}[name]
    (path := tmp_path / name).write_bytes("\r".join([*lines, ""]).encode())
    assert read_texts(path) == ["one", "two"]


def test_texts_of_a_column_are_named_guessed_or_refused() -> None:
    records = records_of([{"id": "1", "sentence": "One.", "title": "T"}, {"id": "2", "sentence": ""}], "texts")

    def texts(wanted: str | None) -> list[str]:
        return list(
            column_texts(
                records.columns, records.numbered(), wanted, records.name, "column={!r}", refuse_line, seen.append
            )
        )

    seen: list[str] = []
    assert texts(None) == ["One.", ""]
    assert seen == ["sentence"]
    with pytest.raises(DataError, match=r"record 2: the column 'title' is None"):
        texts("title")
    with pytest.raises(DataError, match=r"no column 'titel'.*Did you mean 'title'"):
        texts("titel")


def test_usual_names_of_text_columns_match_in_any_case_and_exact_ones_first() -> None:
    assert text_column(["Title", "Text"], ["Title", "Text"], None, "the table", "{}") == "Text"
    assert usual_text_column(["Text", "Content", "content"]) == "content"
    assert usual_text_column(["Title"]) is None


@pytest.mark.parametrize("strict", [False, True])
def test_a_return_within_a_row_is_a_bad_line(strict: bool) -> None:
    bad: list[BadLine] = []
    lines = ["text\n", "first\rsecond\n", "third\n"]
    _, rows = delimited_rows(lines, "a.csv", bad.append, delimiter=",", strict=strict)
    assert [row.cells["text"] for row in rows] == ["third"]
    assert [each.location for each in bad] == ["a.csv, line 2"]


def test_rows_that_open_a_quote_are_read_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_MOST_REREAD", 1000)
    text = "label,text\n" + '0,x = s.split(",")\n' * 300 + "1,good\n"
    read: list[str] = []

    def lines() -> Iterator[str]:
        for line in text.splitlines(keepends=True):
            read.append(line)
            yield line

    bad: list[BadLine] = []
    _, rows = delimited_rows(lines(), "a.csv", bad.append, delimiter=",", strict=True)
    assert [row.cells["text"] for row in rows] == ["good"]
    assert len(read) == 302
    assert len(bad) == 300
