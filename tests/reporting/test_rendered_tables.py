"""One table as Markdown, CSV, HTML and on a console."""

import csv
import io
from collections.abc import Collection

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from maskwright.reporting.table import Cell, Table

TABLE = Table(
    ("metric", "recipe", "mean"),
    [
        ("loss, nats", Cell("a <b>", color="#123456"), Cell("1.5", "worse", "worse than b")),
        ("loss, nats", "b|c", Cell("1.0", "strong")),
        ("accuracy", "a", "12"),
    ],
    right=(2,),
    merged=True,
)
PLAIN = [["loss, nats", "a <b>", "1.5 worse than b"], ["loss, nats", "b|c", "1.0"], ["accuracy", "a", "12"]]


def printed(table: Table, width: int = 100, fixed: Collection[int] = (0,)) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(table.terminal(title="scores", fixed=fixed))
    return console.file.getvalue().splitlines()


def test_all_forms_have_the_same_cells() -> None:
    assert list(csv.reader(io.StringIO(TABLE.csv()))) == [list(TABLE.columns), *PLAIN]
    tokens = MarkdownIt("commonmark").enable("table").parse("\n".join(TABLE.markdown()))
    cells = [token.content.replace("\\|", "|") for token in tokens if token.type == "inline"]
    shown = [str(cell) for row in PLAIN for cell in row]
    assert cells[3:] == [cell.replace("<", "&lt;").replace("1.0", "**1.0**") for cell in shown]
    assert [token.attrs.get("style") for token in tokens if token.type == "td_open"][:3] == [
        None,
        None,
        "text-align:right",
    ]
    html = TABLE.html()
    assert "&lt;b&gt;" in html
    assert '<td class="number worse"><span class="whole">1.5</span><small>worse than b</small></td>' in html


def test_repeats_of_the_first_column_are_shown_once_on_pages_and_consoles() -> None:
    assert TABLE.html().count("loss, nats") == 1
    assert 'rowspan="2"' in TABLE.html()
    text = printed(TABLE)
    assert sum("loss, nats" in line for line in text) == 1
    assert any(line.split() == ["b|c", "1.0"] for line in text)
    assert "\n".join(TABLE.markdown()).count("loss, nats") == 2


def test_a_wide_table_becomes_several_that_fit() -> None:
    names = [f"metric {number},\naccuracy" for number in range(7)]
    table = Table(["", *names], [[recipe, *(f"{number}0.0 ± 0.{number}" for number in range(7))] for recipe in "ab"])
    parts = list(table.split(40))
    assert [str(name) for part in parts for name in part.columns[1:]] == names
    for part in parts:
        lines = printed(part, 40, range(len(part.columns)))
        assert all(len(line) <= 40 for line in lines)
        rows = [line for line in lines if line.strip()[:2] in ("a ", "b ")]
        assert [row.split() for row in rows] == [" ".join(map(str, row)).split() for row in part.rows]
    assert next(iter(table.split(1))).columns == ["", names[0]], "at least one beside the first"


def test_columns_are_selected_with_their_alignment() -> None:
    table = TABLE.without("recipe")
    assert (table.columns, table.right, table.rows[2]) == (["metric", "mean"], [1], ["accuracy", "12"])


def test_a_table_without_names_has_no_header() -> None:
    table = Table(("", ""), [("tokens", "1,000")])
    assert "<thead>" not in table.html()
    assert [line.split() for line in printed(table) if line.strip()] == [["scores"], ["tokens", "1,000"]]


@pytest.mark.parametrize("name", ["training.batch_sequences", "runs/a/b"])
def test_names_of_fields_and_paths_may_break_on_narrow_screens(name: str) -> None:
    html = Table(("field",), [(name,)]).html()
    assert html.count("<wbr>") == 2
    assert name in html.replace("<wbr>", "")
