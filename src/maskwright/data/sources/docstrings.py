"""The docstring corpus: English prose from the docstrings of the Python packages on this machine.

The standard library comes first, then the installed packages by name. Files are parsed (`ast`), never imported. One
document a module: its docstring, then those of its classes and functions in the order of the file. With PyTorch
installed this is about ten megabytes of plain technical English, so training can be tried without a download.
"""

import ast
import os
import re
import site
import sysconfig
import warnings
from collections.abc import Iterator
from inspect import cleandoc
from itertools import accumulate
from pathlib import Path

from maskwright.core.spec import fingerprint
from maskwright.data.engines import ordered_map

MAX_BYTES = 25_000_000
# Parsing is slow (10 MB a second): of very large packages only this much is read, public modules first.
MAX_SOURCE_BYTES_PER_PACKAGE = 12_000_000
_VERSION = 3


_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FILES_PER_BATCH = 64
_MAX_FILE_BYTES = 2_000_000
_MIN_WORDS = 40
_SKIPPED_FOLDERS = _words(
    "__pycache__ _pyrepl _vendor dist-packages ensurepip idlelib lib2to3 node_modules site-packages test testing tests "
    "turtledemo vendor vendored"
)
_SKIPPED_FILES = re.compile(r"test_.*|.*_tests?|conftest|.*_pb2(_grpc)?")
# Files with little text between triple quotes are not worth parsing.
_TRIPLE_QUOTED = re.compile(rb'"""(.*?)"""', re.DOTALL)
_MIN_QUOTED_BYTES, _MIN_QUOTED_SHARE = 300, 0.08

# Lines that are no prose: doctests, rules, tables, headings and section names, NumPy's "name : type".
_SKELETON = re.compile(
    r"\s*(?:>>>|\.\.\.(?:\s|$)|In \[\d+\]|\$ |([-=~^\"'`#*+._:])\1{2,}\s*$|\|.*\|\s*$|\+[-=+]+\+\s*$|"
    r"[-=]{2,}(?:\s+[-=]{2,})+\s*$|\**[A-Z][A-Za-z ]{2,24}\**:{0,2}\s*$|\*{0,2}[\w.`'\", *]+\s:(?:\s|$))"
)
# What begins a paragraph and is dropped: bullets, directives, Sphinx's ":param name: ", Google's "name (type): ".
_LEAD = re.compile(
    r"\s*(?:[-*+•]\s|\(?\d{1,2}[.)]\s|\(?[a-z]\)\s|\.\.\s+\w+::|:[\w ]+:\s|"
    r"\*{0,2}[\w.]+(?:\s\([^()]*(?:\([^()]*\)[^()]*)*\))?:\s)\s*"
)
_MARKUP = (
    (re.compile(r":(?:[a-z]+:){1,2}`~(?:[^`<]*\.)?([^`.<]+)`", re.IGNORECASE), r"\1"),  # :class:`~a.b.C`
    (re.compile(r":(?:[a-z]+:){1,2}`!?([^`<]*?)\s*(?:<[^`>]*>)?`", re.IGNORECASE), r"\1"),
    (re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}"), r"\1"),
    (re.compile(r"\[([^\]\[]+)\]\([^()\s]*\)"), r"\1"),
    (re.compile(r"``?([^`]+)``?_{0,2}"), r"\1"),
    (re.compile(r"(?<![\w*])(\*{1,2})(?=\S)([^*]+?)(?<=\S)\1(?![\w*])"), r"\2"),
    (re.compile(r"\s*\[(?:\d+|[A-Z][\w+]*\d{2,4}\w?)\]_?|\s*\|[\w ]+\|_*"), ""),
    (re.compile(r"(?<=[\w)])\s?:+$"), "."),  # what a colon announced (code, a list) is mostly gone
)

_SMALL_WORDS = _words(
    "a about after all also an and any are as at be because been before but by can do does each for from had has have "
    "he his how if in into is it its like may more most must no not of on one only or other our out over she should so "
    "some such than that the their them then there these they this to two under up use used was we were what when "
    "where which while who will with without would you your"
)
_WORD = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*")
_PLAIN = re.compile(r"[(\"'“‘]*[A-Za-z]\w*(?:['’/.-][A-Za-z]\w*)*[)\"'”’.,;:!?]*|[-–—]{1,2}|\d+(?:\.\d+)?[.,;:)]*")
_FIRST = re.compile(
    r"[\"“(]?(?:[A-Z][\w'’-]*[,;:]?|"
    r"[a-z]\w* (?:is|are|can|must|may|should|will|has|was|does|controls|specifies|determines)) "
)
_LAST = re.compile(r"[a-z0-9)\"'”’\]][.!?][)\"'”’]*$")
_CODE_MARKS = re.compile(r"[{}\[\]<>=|\\@#$^*~+&]|\w\(|::")
_BOILERPLATE = re.compile(
    r"copyright|licen[sc]e|all rights reserved|warrant|redistribut|permission is hereby|auto-?generated|do not edit|"
    r"pylint|noqa|^hint|fixme|\bxxx\b|@\w+\.|https?://|www\.|for field number|arxiv",
    re.IGNORECASE,
)


def docstring_documents(*, max_bytes: int = MAX_BYTES, workers: int | None = None) -> Iterator[str]:
    """Yield the prose of each module with at least 40 words, paragraphs separated by blank lines.

    Stops before `max_bytes` bytes of UTF-8. The order depends only on what is installed.
    """
    files = [path for _, paths in _packages() for path in paths]
    batches = (files[first : first + _FILES_PER_BATCH] for first in range(0, len(files), _FILES_PER_BATCH))
    size = 0
    for documents in ordered_map(_read_batch, batches, workers=workers, engine="local"):
        for document in documents:
            size += len(document.encode())
            if size > max_bytes:
                return
            yield document


def docstrings_fingerprint() -> str:
    """Return what identifies the text without reading it: the Python version and each package's files by size."""
    files = [[name, path.name, path.stat().st_size] for name, paths in _packages() for path in paths]
    return fingerprint([_VERSION, sysconfig.get_python_version(), files])


def _packages() -> Iterator[tuple[str, list[Path]]]:
    yield "", _python_files(Path(sysconfig.get_path("stdlib")))
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    for root in filter(Path.is_dir, map(Path, dict.fromkeys(folders))):
        for entry in sorted(root.iterdir(), key=lambda entry: (entry.name.lower(), entry.name)):
            if entry.name.startswith((".", "__")) or entry.suffix in (".dist-info", ".egg-info"):
                continue
            if entry.is_dir() and entry.name not in _SKIPPED_FOLDERS:
                yield entry.name, _python_files(entry)
            elif entry.suffix == ".py":
                yield entry.stem, [entry]


def _python_files(root: Path) -> list[Path]:
    paths = []
    for directory, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith("."))
        paths += [
            Path(directory, name)
            for name in sorted(names)
            if name.endswith(".py") and not _SKIPPED_FILES.fullmatch(name.removesuffix(".py"))
        ]

    def is_private(path: Path) -> bool:
        return any(part.startswith("_") and part != "__init__.py" for part in path.relative_to(root).parts)

    paths.sort(key=is_private)
    sizes = accumulate(path.stat().st_size for path in paths)
    return [path for path, size in zip(paths, sizes, strict=True) if size <= MAX_SOURCE_BYTES_PER_PACKAGE]


def _read_batch(paths: list[Path]) -> list[str]:
    documents = []
    for path in paths:
        paragraphs = dict.fromkeys(part for text in _docstrings(path) for part in prose_paragraphs(cleandoc(text)))
        if sum(paragraph.count(" ") + 1 for paragraph in paragraphs) >= _MIN_WORDS:
            documents.append("\n\n".join(paragraphs))
    return documents


def _docstrings(path: Path) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and functions; none if it cannot be parsed or has little text."""
    try:
        source = path.read_bytes()
        quoted = sum(map(len, _TRIPLE_QUOTED.findall(source)))
        if len(source) > _MAX_FILE_BYTES or quoted < max(_MIN_QUOTED_BYTES, _MIN_QUOTED_SHARE * len(source)):
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _Documented):
            yield ast.get_docstring(node, clean=False) or ""
        body = getattr(node, "body", [])
        waiting += (child for child in reversed(body) if isinstance(child, _Documented | ast.If | ast.Try))


def prose_paragraphs(docstring: str) -> list[str]:
    """Return the paragraphs of a docstring (as `inspect.cleandoc` leaves it) that are English prose, one line each."""
    blocks: list[list[str]] = [[]]
    first_indent = 0
    for line in docstring.expandtabs().split("\n"):
        indent = len(line) - len(line.lstrip())
        lead = _LEAD.match(line)
        text = "" if _SKELETON.match(line) else line[lead.end() if lead else 0 :].strip()
        if not text or lead or indent < first_indent:
            blocks.append([])
        if text:
            first_indent = first_indent if blocks[-1] else indent
            blocks[-1].append(text)
    return [paragraph for paragraph in map(_without_markup, blocks) if is_english_prose(paragraph)]


def _without_markup(lines: list[str]) -> str:
    text = " ".join(lines)
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return " ".join(text.replace("\\ ", "").split())


def is_english_prose(paragraph: str) -> bool:
    """Return whether a paragraph reads as one or more whole English sentences."""
    if not _FIRST.match(paragraph) or not _LAST.search(paragraph) or _BOILERPLATE.search(paragraph):
        return False
    tokens = paragraph.split()
    return (
        len(tokens) >= 8
        and paragraph.count("(") == paragraph.count(")")
        and paragraph.count('"') % 2 == 0
        and sum(word.lower() in _SMALL_WORDS for word in _WORD.findall(paragraph)) >= 0.2 * len(tokens)
        and sum(_PLAIN.fullmatch(token) is not None for token in tokens) >= 0.82 * len(tokens)
        and len(_CODE_MARKS.findall(paragraph)) <= 0.08 * len(tokens)
    )
