"""The corpus that every machine has: English prose from the docstrings of the Python packages on it.

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
from maskwright.data.docstring_prose import prose_paragraphs
from maskwright.data.ordered_pool import ordered_map

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
