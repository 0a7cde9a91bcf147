"""Markdown to prose, without code, tables, images, HTML and front matter."""

import re
from functools import cache

from markdown_it import MarkdownIt

_FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\n.*?\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FOOTNOTE_OR_BOX = re.compile(r"\[\^[^\]]+\]|\A\[[ xX]\] ")
_SHOWN = {"text": "", "code_inline": "", "softbreak": " ", "hardbreak": " "}


def strip_markdown(text: str) -> str:
    """Return the prose of a Markdown page: paragraphs, headings and list items set apart by blank lines."""
    paragraphs = []
    in_table = False
    for token in _parser().parse(_FRONT_MATTER.sub("", text)):
        in_table = token.type == "table_open" or (in_table and token.type != "table_close")
        if token.type == "inline" and not in_table:
            pieces = (part.content or _SHOWN[part.type] for part in token.children or () if part.type in _SHOWN)
            paragraphs.append(_FOOTNOTE_OR_BOX.sub("", "".join(pieces)).strip())
    return "\n\n".join(filter(None, paragraphs))


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])
