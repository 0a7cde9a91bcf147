"""What in a docstring is English: running paragraphs, without the code, tables, fields and marks around them.

Docstrings mix prose with doctests, parameter lists, reST directives and ASCII art in three common styles (reST, NumPy,
Google). First the skeleton goes by its shape, then each paragraph has to look like English sentences: it
begins and ends like one, is made of words, and has the small words that English cannot do without.
"""

import re
from collections.abc import Iterator

MIN_PARAGRAPH_WORDS = 8
_MIN_SMALL_WORDS = 0.2
_MIN_PLAIN_WORDS = 0.82
_MAX_CODE_MARKS = 0.08


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SMALL_WORDS = _words(
    "a about after all also an and any are as at be because been before but by can do does each for from had has have "
    "he his how if in into is it its like may more most must no not of on one only or other our out over she should so "
    "some such than that the their them then there these they this to two under up use used was we were what when "
    "where which while who will with without would you your"
)
_KEPT_DIRECTIVES = _words("note warning tip important caution attention hint")
# Sections whose entries are a name, then a description: the names go, descriptions may stay.
_ENTRY_SECTIONS = _words(
    "args arguments parameters params returns return yields yield raises raise warns receives attributes kwargs inputs "
    "outputs input output variables fields options constants exceptions"
) | {"other parameters", "keyword arguments", "keyword args", "class attributes", "call arguments"}
_DROPPED_SECTIONS = _words(
    "example examples methods references reference shape shapes usage todo authors author version history changelog "
    "copyright license functions classes exports contents synopsis"
) | {"see also", "command line", "sample usage", "example usage", "basic usage"}

_RULE = re.compile(r"^\s*([-=~^\"'`#*+._:])\1{2,}\s*$")
_TABLE = re.compile(r"^\s*(?:\+[-=+]+\+|={2,}(?:\s+={2,})+|-{2,}(?:\s+-{2,})+|\|.*\|)\s*$")
_PROMPT = re.compile(r"^\s*(?:>>>|\.\.\.(?:\s|$)|In \[\d+\]|Out\[\d+\]|\$ )")
_DIRECTIVE = re.compile(r"^(\s*)\.\.\s+(?:([\w:-]+)::(.*)|.*)$")
_FIELD = re.compile(r"^\s*(?::[\w ]+(?:\s+[^:]*)?:|@\w+\b)")
_SECTION = re.compile(r"^(\s*)\**([A-Z][A-Za-z ]{2,24})\**\s*:{1,2}\**\s*$")
_FENCE = re.compile(r"^\s*(```|~~~)")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\(?\d{1,2}[.)]|\(?[a-z]\))\s+")
# "name (type): description" (Google), "name : type" (NumPy; the description follows, indented), "name -- description".
_GOOGLE_ENTRY = re.compile(
    r"^\s*\*{0,2}[\w.`'\", *]+?\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\]]*\])?\s*(?::(?=\s)|\s--?(?=\s))\s*"
)
_NUMPY_ENTRY = re.compile(r"^\s*\*{0,2}[\w.`'\", *]+\s:(?:\s|$).*|^\s*[\w., *`'\[\]|]+$")

_ROLE = re.compile(r":(?:[a-z]+:){1,2}`([^`]*)`", re.IGNORECASE)
_ROLE_TARGET = re.compile(r"^[!~]?(.*?)\s*(?:<[^<>]*>)?$", re.DOTALL)
_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}")
_MARKDOWN_LINK = re.compile(r"\[([^\]\[]+)\]\([^()\s]*\)")
_LITERAL = re.compile(r"``?([^`]+)``?_{0,2}")
_STRONG = re.compile(r"(?<![\w*])(\*{1,2})(?=\S)([^*]+?)(?<=\S)\1(?![\w*])")
_REFERENCE_MARK = re.compile(r"\s*\[(?:\d+|[A-Z][\w+]*\d{2,4}\w?)\]_?|\s*\|[\w ]+\|_*")
_DANGLING_REFERENCE = re.compile(r"\s(?:For (?:more|further) (?:information|details),? )?[Ss]ee(?: also)?[.,:]*$")
_WORD = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*")
_TOKEN_IS_WORD = re.compile(
    r"[(\"'“‘]*[A-Za-z][A-Za-z_\d]*(?:['’/.-][A-Za-z][A-Za-z_\d]*)*[)\"'”’]*[.,;:!?]*[)\"'”’]*|[-–—]{1,2}|\d+(?:\.\d+)?[.,;:)]*"
)
_FIRST = re.compile(
    r"[\"“(]?(?:[A-Z][\w'’-]*[,;:]?|"
    r"[a-z]\w* (?:is|are|can|must|may|should|will|has|was|does|controls|specifies|determines)) "
)
_LAST = re.compile(r"[a-z0-9)\"'”’\]][.!?][)\"'”’]*$|[)\"'”’][.!?]$|[.!?][)\"'”’]$")
_CODE_MARKS = re.compile(r"[{}\[\]<>=|\\@#$^*~+&]|\w\(|::")
_BOILERPLATE = re.compile(
    r"copyright|licen[sc]e|all rights reserved|warrant|redistribut|permission is hereby|auto-?generated|do not edit|"
    r"pylint|noqa|^todo|fixme|\bxxx\b|@\w+\.|https?://|www\.|for field number|arxiv",
    re.IGNORECASE,
)


def prose_paragraphs(docstring: str) -> list[str]:
    """Return the paragraphs of a docstring that are English prose, as plain text, each on one line.

    Args:
        docstring: A docstring as `inspect.cleandoc` leaves it.

    Example:
        >>> prose_paragraphs("Open a file, which must exist, and return a stream to read from it.\\n\\n>>> open(1)\\n")
        ['Open a file, which must exist, and return a stream to read from it.']
    """
    found = (_plain(" ".join(lines)) for lines in _blocks(_without_code(docstring.expandtabs().split("\n"))))
    return [paragraph for paragraph in found if is_english_prose(paragraph)]


def is_english_prose(paragraph: str) -> bool:
    """Say whether a paragraph reads as one or more whole English sentences."""
    if not _FIRST.match(paragraph) or not _LAST.search(paragraph) or _BOILERPLATE.search(paragraph):
        return False
    tokens = paragraph.split()
    if len(tokens) < MIN_PARAGRAPH_WORDS:
        return False
    words = _WORD.findall(paragraph)
    small = sum(word.lower() in _SMALL_WORDS for word in words)
    plain = sum(_TOKEN_IS_WORD.fullmatch(token) is not None for token in tokens)
    marks = len(_CODE_MARKS.findall(paragraph))
    balanced = paragraph.count("(") == paragraph.count(")") and paragraph.count('"') % 2 == 0
    return (
        balanced
        and small >= _MIN_SMALL_WORDS * len(tokens)
        and plain >= _MIN_PLAIN_WORDS * len(tokens)
        and marks <= _MAX_CODE_MARKS * len(tokens)
    )


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _without_code(lines: list[str]) -> Iterator[str]:
    """Drop what its shape gives away: sections of code, names of fields, directives, doctests, tables, rules."""
    skip_below = -1  # drop lines indented deeper than this, until one is not
    section = ""  # the NumPy or Google section we are in
    section_indent = -1  # a Google section ends at a line that is not deeper; -1 in a NumPy section
    fenced = False
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        indent = _indent(line)
        if _FENCE.match(line):
            fenced = not fenced
        elif fenced or not line.strip() or _PROMPT.match(line):
            pass
        elif skip_below >= 0 and indent > skip_below:
            continue
        elif _RULE.match(following) and not _RULE.match(line) and len(following.strip()) >= len(line.strip()) - 2:
            # A heading with its underline: a NumPy section lasts until the next one.
            section, section_indent, skip_below = line.strip().lower(), -1, -1
        elif _RULE.match(line) or _TABLE.match(line):
            pass
        elif heading := _SECTION.match(line):
            section, section_indent, skip_below = heading[2].lower(), indent, -1
        else:
            skip_below = -1
            if section and section_indent >= 0 and indent <= section_indent:
                section = ""
            if section in _DROPPED_SECTIONS:
                pass
            elif directive := _DIRECTIVE.match(line):
                if directive[2] in _KEPT_DIRECTIVES:
                    yield ""
                    yield " " * max(indent + 1, _indent(following)) + directive[3].strip()
                    continue
                skip_below = indent
            elif _FIELD.match(line):
                skip_below = indent
            elif section in _ENTRY_SECTIONS:
                yield from _entry_line(line, numpy_style=section_indent < 0)
                continue
            elif line.rstrip().endswith("::"):
                skip_below = indent
                yield line.rstrip()[:-1]
                continue
            else:
                yield line
                continue
        yield ""


def _entry_line(line: str, *, numpy_style: bool) -> Iterator[str]:
    if numpy_style:
        # The names stand at the margin, the descriptions are indented.
        yield "" if _NUMPY_ENTRY.match(line) and not line.startswith(" ") else line
    elif entry := _GOOGLE_ENTRY.match(line):
        yield ""
        yield " " * _indent(line) + line[entry.end() :]
    else:
        yield line


def _blocks(lines: Iterator[str]) -> Iterator[list[str]]:
    """Gather lines to paragraphs: at blank lines, list items, and lines that begin deeper than the one before."""
    block: list[str] = []
    first_indent = 0
    for line in lines:
        stripped = line.strip()
        bullet = _BULLET.match(line)
        if not stripped or bullet or (block and _indent(line) < first_indent):
            if block:
                yield block
            block = []
        if not stripped:
            continue
        if not block:
            first_indent = _indent(line)
        block.append(line[bullet.end() :].strip() if bullet else stripped)
    if block:
        yield block


def _plain(text: str) -> str:
    text = _ROLE.sub(_role_text, text)
    text = _MARKDOWN_LINK.sub(r"\1", _LINK.sub(r"\1", text))
    text = _LITERAL.sub(r"\1", text)
    text = _STRONG.sub(r"\2", _STRONG.sub(r"\2", text))
    text = _REFERENCE_MARK.sub("", text)
    text = " ".join(text.replace("\\ ", "").split())
    text = _DANGLING_REFERENCE.sub("", text)
    # What a colon announced (code, a list, a formula) is mostly gone.
    return re.sub(r"(?<=[\w)])\s?:$", ".", text)


def _role_text(match: re.Match[str]) -> str:
    target = match[1]
    text = _ROLE_TARGET.sub(r"\1", target)
    return text.rsplit(".", 1)[-1] if target.startswith("~") else text
