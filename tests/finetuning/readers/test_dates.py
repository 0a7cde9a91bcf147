"""Cells that are dates or times, and columns of them, which are neither text nor label."""

from datetime import date, datetime, time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.errors import DataError
from maskwright.finetuning.readers import ReadOptions, read_texts
from maskwright.finetuning.readers.dates import is_date

FORMATS = (
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S.%f+01:00",
    "%Y-%m-%dT%H:%MZ",
    "%Y/%m/%d %H:%M",
    "%d.%m.%Y",
    "%d.%m.%y %H:%M Uhr",
    "%d. %m. %Y",
    "%m/%d/%Y",
    "%m/%d/%Y %I:%M %p",
    "%d-%m-%Y, %H:%M",
    "%Y年%m月%d日",
    "%H:%M",
    "%H:%M:%S",
)


@given(st.datetimes(min_value=datetime(1000, 1, 1)), st.sampled_from(FORMATS))
def test_dates_are_known_however_they_are_written(moment: datetime, written: str) -> None:
    assert is_date(moment.strftime(written))
    assert is_date(moment)


@pytest.mark.parametrize("value", [date(2025, 12, 31), time(8, 5), "1.2.2025", " 2025-1-2 ", "8:05", "3:05 p.m."])
def test_short_dates_and_those_of_parquet_are_known(value: object) -> None:
    assert is_date(value)


@pytest.mark.parametrize(
    "value",
    ["", "gut", "1.5", "2025", "8.30", "12-13", "1.2.3", "2025-13-01", "32.1.2025", "am 1.2.2025", 5, None, True],
)
def test_other_cells_are_no_dates(value: object) -> None:
    assert not is_date(value)


def write(folder: Path, header: str, rows: list[str]) -> Path:
    path = folder / "a.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("day", ["2025-12-0{}", "0{}.12.2025", "12/0{}/2025 08:00", "0{}.12.2025 08:00:00,5"])
def test_newcomers_column_of_dates_is_no_label(tmp_path: Path, day: str) -> None:
    rows = [f"{n};Satz {n};{'gut' if n % 2 else 'schlecht'};{day.format(1 + n % 5)}" for n in range(40)]
    file = read_texts(write(tmp_path, "Nr;Bewertung;Gefühl;Datum", rows), "classification")
    # Longer than the texts, the dates are no text either.
    assert [(*example.texts, example.label) for example in file.examples[:2]] == [
        ("Satz 0", "schlecht"),
        ("Satz 1", "gut"),
    ]
    assert file.notes[-2:] == (
        "dates and times are no labels: Datum",
        "column 'Gefühl' is taken as the label (2 different values)",
    )


def test_column_called_as_labels_are_is_none_if_it_holds_dates(tmp_path: Path) -> None:
    rows = [f"Ein Satz {n};{'gut' if n % 2 else 'schlecht'};0{1 + n % 5}.12.2025" for n in range(20)]
    file = read_texts(write(tmp_path, "Satz;Gefühl;Tag", rows), "classification")
    assert {example.label for example in file.examples} == {"gut", "schlecht"}
    named = read_texts(tmp_path / "a.csv", "classification", ReadOptions(label="Tag"))
    assert named.examples[0].label == "01.12.2025"


def test_several_labels_are_refused_with_the_option_as_one_writes_it(tmp_path: Path) -> None:
    rows = [f"Ein Satz {n};{n % 3};{'gut' if n % 2 else 'schlecht'};0{1 + n % 5}.12.2025" for n in range(20)]
    with pytest.raises(
        DataError, match=r"several columns could be the label \(Art, Gefühl hier\).*e\.g\. `--label 'Gefühl hier'`"
    ):
        read_texts(write(tmp_path, "Satz;Art;Gefühl hier;Datum", rows), "classification")
