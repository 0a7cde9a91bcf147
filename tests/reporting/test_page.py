"""Pages and charts."""

import re

from maskwright.reporting.chart import Line, chart
from maskwright.reporting.page import details, items, legend, mark, origin, page, paragraph, section
from maskwright.reporting.table import Cell, Table

HOSTILE = "<script>alert(1)</script> {heading}"


def test_text_is_shown_and_never_interpreted() -> None:
    text = page(
        HOSTILE,
        paragraph(HOSTILE, mark(HOSTILE, original=HOSTILE)),
        items([HOSTILE]),
        legend([Cell(HOSTILE, color="#123456")]),
        section("a", HOSTILE, details(HOSTILE, Table((HOSTILE,), [(HOSTILE,)]))),
        origin(HOSTILE, {"command": "x", HOSTILE: HOSTILE}),
    )
    assert text.startswith("<!doctype html>")
    assert "<script" not in text
    assert text.count("alert(1)") == 14
    assert "{heading}" in text


def test_blocks_without_content_are_left_out() -> None:
    assert section("a", "b", paragraph(""), details("c", Table(("d",), []))) == ""


def test_dollar_signs_in_labels_are_text() -> None:
    assert "$x^$" in chart("a $\\frac", "x", "y", [Line([(1, 2)], "$x^$")])


def test_a_chart_is_inline_svg_in_the_colors_of_the_page() -> None:
    assert chart("a", "x", "y", [Line([])]) == ""
    both = "".join(chart(title, "x, m", "y, s", [Line([(0, 1), (1e6, 2)], marker="o")]) for title in ("a", "b"))
    assert "currentColor" in both
    assert "1M" in both
    ids = re.findall(r' id="([^"]+)"', both)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"(?:url\(|href=\")#([^)\"]+)", both)) <= set(ids)
    assert not re.findall(r'(?:src|href)="(?!#)', both)
    assert "DejaVu" not in both
    assert "font-family" not in both
    assert "font-size: 9px" in both


def test_a_title_may_begin_with_a_digit() -> None:
    assert ' id="20news-accuracy-' in chart("20news accuracy", "x", "y", [Line([(0, 1), (1, 2)])])
