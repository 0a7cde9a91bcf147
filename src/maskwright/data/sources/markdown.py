"""Markdown to prose, without code, tables, HTML and front matter."""

import html
import re
from collections.abc import Callable

_FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\n.*?\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
# Backticks after a fence of backticks make it a code span instead.
_FENCE = re.compile(r"^ {0,3}(?:> ?)*(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})", re.MULTILINE)
_MARK = re.compile(
    rf"(?P<blank>^[ \t]*$)|{_FENCE.pattern}|(?P<code>`+)|(?<!\\)<(?:!--|(?P<block>script|style|pre|table|svg)\b)",
    re.MULTILINE | re.IGNORECASE,
)
_TAG = re.compile(r"</?[A-Za-z][\w-]*(?:\s+[\w:-]+(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s>\"']+))?)*\s*/?>")
_AUTOLINK = re.compile(r"<((?:https?|ftp)://[^\s>]+|[\w.+-]+@[\w-]+\.[\w.-]+)>")
_IMAGE = re.compile(r"!\[[^\]]*\](?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\]]*\])")
_LINK = re.compile(r"(?<!\\)\[([^\[\]]*)\](?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\]]*\])")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s*\S+")
_FOOTNOTE_MARK = re.compile(r"\[\^[^\]]+\]")
_HEADING = re.compile(r"^ {0,3}#{1,6}(?:[ \t]+|$)")
_CLOSING_HASHES = re.compile(r"[ \t]#+[ \t]*$")
_RULE = re.compile(r"^ {0,3}(?:[-*_=][ \t]*){3,}$")
_UNDERLINE = re.compile(r"^ {0,3}(?:=+|-+)[ \t]*$")
_QUOTE = re.compile(r"^ {0,3}(?:> ?)+")
_BULLET = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
_TABLE_ROW = re.compile(r"^\s*\|.*\|\s*$|^\s*:?-{2,}:?(?:\s*\|\s*:?-{2,}:?)+\s*\|?\s*$")
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
# The limit of 500 characters keeps the time linear: a mark without its other half is looked up only so far.
_EMPHASIS = re.compile(r"(\*{1,3}|~~)(?=\S)(.{1,500}?)(?<=\S)\1")
_UNDERSCORES = re.compile(r"(?<![\w\\])(_{1,3})(?=\S)(.{1,500}?)(?<=\S)\1(?!\w)")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")


def strip_markdown(text: str) -> str:
    """Return the prose of a Markdown page: paragraphs, headings and list items set apart by blank lines.

    Lines that Markdown would join are joined. Indented code is recognized only after a blank line, as Markdown
    itself does, and not within lists.

    Example:
        >>> strip_markdown("# Title\\n\\nSome *plain* [text](there)\\nthat goes on.\\n\\n    code()\\n")
        'Title\\n\\nSome plain text that goes on.'
    """
    text = _FRONT_MATTER.sub("", text)
    text = _without_html(text)
    paragraphs: list[str] = []
    current: list[str] = []
    fence = ""
    in_list = after_blank = False

    def close() -> None:
        if current:
            paragraphs.append(_inline(" ".join(current)))
            current.clear()

    for line in text.split("\n"):
        if fence:
            closing = line.strip().lstrip("> ")
            if closing.startswith(fence) and not closing.strip(fence[0]):
                fence = ""
            continue
        if opening := _FENCE.match(line):
            close()
            fence = opening["fence"]
            continue
        if not line.strip():
            close()
            after_blank = True
            continue
        if line.startswith(("    ", "\t")) and not current and not in_list and (after_blank or not paragraphs):
            continue
        indented, line = line[:1] in " \t", _QUOTE.sub("", line)
        if _BULLET.match(line) and not _RULE.match(line):
            close()
            in_list = True
            current.append(_BULLET.sub("", line))
        elif heading := _HEADING.match(line):
            close()
            paragraphs.append(_inline(_CLOSING_HASHES.sub("", line[heading.end() :])))
            in_list = False
        elif _UNDERLINE.match(line) or _RULE.match(line) or _DEFINITION.match(line) or _TABLE_ROW.match(line):
            close()
        else:
            in_list = in_list and (indented or not after_blank)
            current.append(line.strip())
        after_blank = False
    close()
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def _without_html(text: str) -> str:
    """Remove comments and blocks of HTML outside code; keep those without an end. Linear time."""
    marks = list(_MARK.finditer(text))
    code_ends: dict[int, int] = {}
    next_ends: dict[int, int] = {}
    for mark in reversed(marks):
        if mark["code"]:
            code_ends[mark.start()] = next_ends.get(len(mark[0]), mark.end())
            next_ends[len(mark[0])] = mark.end()
        elif not mark[0].startswith("<"):
            next_ends.clear()  # A code span does not extend beyond its paragraph.
    kept: list[str] = []
    without_end: set[str] = set()
    copied = place = 0
    for mark in marks:
        if mark.start() < place:
            continue
        if mark["code"]:
            place = code_ends[mark.start()]
        elif fence := mark["fence"]:
            end = re.compile(rf"^[ \t>]*{fence[0]}{{{len(fence)},}}[ \t]*$", re.MULTILINE).search(text, mark.end())
            place = end.end() if end else len(text)
        elif mark[0].startswith("<"):
            closing = rf"</{mark['block'].lower()}\s*>" if mark["block"] else "-->"
            if closing in without_end:
                continue
            if end := re.compile(closing, re.IGNORECASE).search(text, mark.start() + 2):
                kept.append(text[copied : mark.start()])
                copied = place = end.end()
            else:
                without_end.add(closing)
    return "".join([*kept, text[copied:]])


def _inline(text: str) -> str:
    kept: list[str] = []

    def keep(group: int) -> Callable[[re.Match[str]], str]:
        # Code and escaped marks are taken out of the way so that a * or _ in them is not read as emphasis.
        def put(match: re.Match[str]) -> str:
            kept.append(match[group].strip())
            return f"\x00{len(kept) - 1}\x00"

        return put

    text = _ESCAPE.sub(keep(1), _CODE_SPAN.sub(keep(2), text.replace("\x00", "")))
    text = _LINK.sub(r"\1", _IMAGE.sub("", text))
    text = _FOOTNOTE_MARK.sub("", _AUTOLINK.sub(r"\1", text))
    text = _TAG.sub("", text)
    text = _EMPHASIS.sub(r"\2", text)
    text = _UNDERSCORES.sub(r"\2", _EMPHASIS.sub(r"\2", text))
    return re.sub(r"\x00(\d+)\x00", lambda match: kept[int(match[1])], html.unescape(text)).strip()
