"""Text of users and files in Markdown: escaped, so that it is shown and never interpreted."""

import re

_MARKS = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])|^>|^[#+-](?!\w)|(?<=\s)#(?=#*$)|^\d+(?=[.)](?!\w))")


def escape(text: str) -> str:
    """Return text as one line of Markdown without HTML, emphasis, links, code, table cells, headings or list items."""
    one_line = " ".join(text.split())
    marked = _MARKS.sub(lambda match: f"{match[0]}\\" if match[0].isdigit() else f"\\{match[0]}", one_line)
    return without_html(marked)


def code(text: str) -> str:
    """Return text as a code span of one line."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{' '.join(text.split())}{pad}{fence}"


def without_html(text: str) -> str:
    """Return Markdown with the HTML in it escaped."""
    return text.replace("&", "&amp;").replace("<", "&lt;")
