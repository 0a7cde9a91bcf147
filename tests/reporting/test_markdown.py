"""Text of users in Markdown is shown as it is, and never interpreted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from maskwright.reporting.markdown import code, escape
from maskwright.reporting.table import Table
from tests.hostile import fuzzing

_READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
_PIECES = [
    *("<script>alert(1)</script>", "<!--", "-->", "&lt;", "&amp;", "&", "<", ">", "a", "b c", " ", "\n", "\n\n", "|"),
    *("`", "``", "*", "**", "_", "__", "~~", "[x](http://y)", "![", "]", "\\", "# ", "- ", "+ ", "1. "),
    *("\u2028", "é", "<http://y>", ": ", "$x^2$", "!", "2) ", "= ", "---"),
]  # fmt: skip
texts = st.lists(st.sampled_from(_PIECES), max_size=8).map("".join)


def shown(page: str, *, is_code: bool = False) -> list[str]:
    """Return the text of each inline block; fail for any markup in it."""
    blocks = []
    for token in _READER.parse(page):
        assert token.type != "html_block"
        if token.type == "inline":
            kinds = {"text", "text_special"} | ({"code_inline"} if is_code else set())
            assert {child.type for child in token.children or ()} <= kinds, token.children
            blocks.append("".join(child.content for child in token.children or ()))
    return blocks


@fuzzing
@given(texts)
def test_text_is_shown_as_it_is(text: str) -> None:
    one_line = " ".join(text.split())
    assert shown(f"# {escape(text)}") == [one_line]
    assert shown(f"- {escape(text)}") == ([one_line] if one_line else [])
    assert shown(escape(text)) == ([one_line] if one_line else [])
    assert shown(f"{code(text)}.", is_code=True) == [f"{one_line}." if one_line else f"{code(text)}."]
    assert "<script>" not in escape(text)


@fuzzing
@given(st.lists(st.lists(texts, min_size=2, max_size=2), min_size=1, max_size=3))
def test_cells_of_tables_are_shown_as_they_are(rows: list[list[str]]) -> None:
    lines = Table(["a", "b"], rows).markdown()
    assert len(lines) == 2 + len(rows)
    assert shown("\n".join(lines)) == ["a", "b", *(" ".join(cell.split()) for row in rows for cell in row)]


@pytest.mark.parametrize("text", ["hidden_size", "runs/a-b.txt", "-1.5", "3.2e-4", "1,000", "a - b", "TF-IDF + ridge"])
def test_plain_text_is_left_as_it_is(text: str) -> None:
    assert escape(text) == text
