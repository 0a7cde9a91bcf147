"""What in a docstring is English: running paragraphs, without the code, tables, fields and marks around them.

Docstrings mix prose with doctests, parameter lists, reST directives and ASCII art in three common styles (reST, NumPy,
Google). First the skeleton goes by its shape, then each paragraph has to look like English sentences: it
begins and ends like one, is made of words, and has the small words that English cannot do without.

The corpus that every machine has: English prose from the docstrings of the Python packages on it.

The standard library comes first, then the installed packages by name. Files are read and parsed (`ast`), never
imported; what is not prose is left out (`docstring_prose`). One document a module: its docstring, then those of its
classes and functions in the order of the file. With PyTorch installed this is some ten megabytes of plain technical
English, enough to see every part of a training run work on real text without a download.
"""

import ast
import os
import re
import site
import sysconfig
import warnings
from collections.abc import Iterator
from functools import partial
from inspect import cleandoc
from pathlib import Path

from maskwright.core.spec import fingerprint
from maskwright.data.pool import ordered_map

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


MAX_BYTES = 25_000_000
# Parsing is slow (10 MB a second): of very large packages only this much is looked at, public modules first.
MAX_SOURCE_BYTES_PER_PACKAGE = 12_000_000
_BATCH_BYTES = 1_500_000
_MAX_FILE_BYTES = 2_000_000
_SKIPPED_FOLDERS = frozenset(
    ["__pycache__", "_pyrepl", "_vendor", "dist-packages", "ensurepip", "idlelib", "lib2to3", "node_modules"]
) | {"site-packages", "test", "testing", "tests", "turtledemo", "vendor", "vendored"}
_SKIPPED_FILES = re.compile(r"test_.*|.*_tests?|conftest|.*_pb2(_grpc)?")
_TRIPLE_QUOTED = re.compile(rb'"""(.*?)"""', re.DOTALL)
_MIN_QUOTED_BYTES = 300
_MIN_QUOTED_SHARE = 0.08
# How NumPy and PyTorch give docstrings to functions written in C.
_DOCSTRING_SETTERS = ("add_docstr", "_add_docstr", "add_newdoc")


def docstring_documents(
    *, min_words: int = 40, max_bytes: int = MAX_BYTES, workers: int | None = None
) -> Iterator[str]:
    """Yield the prose of each module's docstrings as one document, paragraphs set apart by blank lines.

    The order depends on what is installed alone: standard library, then packages by name, modules by path.

    Args:
        min_words: Modules with fewer words of prose are left out.
        max_bytes: Stop before this many bytes of UTF-8.
        workers: Processes to parse with; None chooses, 1 works in this one.
    """
    size = 0
    for documents in ordered_map(partial(_read_batch, min_words=min_words), _batches(), workers=workers):
        for document in documents:
            size += len(document.encode())
            if size > max_bytes:
                return
            yield document


def docstrings_fingerprint() -> str:
    """Return what identifies the text without reading it: the Python version and each package's files by size."""
    files = [[name, path.name, path.stat().st_size] for name, paths in _packages() for path in paths]
    return fingerprint([sysconfig.get_python_version(), files])


def _packages() -> Iterator[tuple[str, list[Path]]]:
    standard = Path(sysconfig.get_path("stdlib"))
    yield "", _bounded(standard, list(_python_files(standard)))
    for folder in dict.fromkeys(
        [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    ):
        root = Path(folder)
        if not root.is_dir():
            continue
        for entry in sorted(root.iterdir(), key=lambda entry: (entry.name.lower(), entry.name)):
            if entry.name.startswith((".", "__")) or entry.suffix in (".dist-info", ".egg-info"):
                continue
            if entry.is_dir() and entry.name not in _SKIPPED_FOLDERS:
                yield entry.name, _bounded(entry, list(_python_files(entry)))
            elif entry.suffix == ".py":
                yield entry.stem, [entry]


def _python_files(root: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith("."))
        for name in sorted(names):
            stem, suffix = os.path.splitext(name)
            if suffix == ".py" and not _SKIPPED_FILES.fullmatch(stem):
                yield Path(place, name)


def _bounded(root: Path, paths: list[Path]) -> list[Path]:
    # Public modules are the better documented: where not all can be read, private ones go first.
    def is_private(path: Path) -> bool:
        return any(part.startswith("_") and part != "__init__.py" for part in path.relative_to(root).parts)

    chosen: set[Path] = set()
    size = 0
    for path in sorted(paths, key=is_private):
        size += path.stat().st_size
        if size > MAX_SOURCE_BYTES_PER_PACKAGE:
            break
        chosen.add(path)
    return [path for path in paths if path in chosen]


def _batches() -> Iterator[list[Path]]:
    batch: list[Path] = []
    size = 0
    for _, paths in _packages():
        for path in paths:
            batch.append(path)
            size += path.stat().st_size
            if size >= _BATCH_BYTES:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def _read_batch(paths: list[Path], *, min_words: int) -> list[str]:
    documents = []
    for path in paths:
        for docstrings in _documented(path):
            paragraphs = dict.fromkeys(
                paragraph for docstring in docstrings for paragraph in prose_paragraphs(cleandoc(docstring))
            )
            if sum(paragraph.count(" ") + 1 for paragraph in paragraphs) >= min_words:
                documents.append("\n\n".join(paragraphs))
    return documents


def _documented(path: Path) -> list[list[str]]:
    """Return what each document of a file is made of; none if it cannot be parsed (somebody else's, and not needed)."""
    try:
        source = path.read_bytes()
        if len(source) > _MAX_FILE_BYTES or not _promises_prose(source):
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    if path.parent.name == "pydoc_data":
        # The language reference, as `help("with")` shows it: a dictionary of topics.
        return [[text] for node in ast.walk(tree) if isinstance(node, ast.Dict) for text in _long_strings(node.values)]
    return [list(_docstrings(tree))]


def _promises_prose(source: bytes) -> bool:
    if b"Autogenerated by Sphinx" in source[:200]:
        return True  # the language reference in `pydoc_data`
    quoted = sum(len(text) for text in _TRIPLE_QUOTED.findall(source))
    return quoted >= max(_MIN_QUOTED_BYTES, _MIN_QUOTED_SHARE * len(source))


def _docstrings(node: ast.AST) -> Iterator[str]:
    """Yield the docstrings of a module, and of the classes and functions in it, in order."""
    body = getattr(node, "body", None)
    for position, child in enumerate(body if isinstance(body, list) else []):
        match child:
            case ast.Expr(value=ast.Constant(value=str(text))) if position == 0:
                yield text
            case ast.Expr(value=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments)):
                if name in _DOCSTRING_SETTERS:
                    yield from _long_strings(arguments)
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.If() | ast.Try():
                yield from _docstrings(child)


def _long_strings(arguments: list[ast.expr]) -> Iterator[str]:
    for argument in arguments:
        match argument:
            case ast.Constant(value=str(text)) if "\n" in text:
                yield text
            case ast.Tuple(elts=elements):
                yield from _long_strings(elements)
            case ast.Call(func=ast.Attribute(value=value)):  # """...""".format(...)
                yield from _long_strings([value])
