"""Parser of CORPUS arguments: files, a folder, a glob, a URL, a Hugging Face dataset, or the docstrings at hand.

    novels.txt                one file
    corpora/en                a folder, read recursively
    "dumps/*.jsonl.gz:0.7"    a glob with a weight
    reviews.csv#body          the column to read
    s3://bucket/en/*.txt.gz   a file, folder or glob of an object store (`objects`), also `gs://`, `https://`
    owner/name[train]#text    a dataset of the Hugging Face hub
    docstrings                the English prose of the Python packages on this machine (`docstrings`)

An existing path is always used as it is.
"""

import glob
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from maskwright.core.errors import DataError, nearest
from maskwright.core.storage.files import cache_folder
from maskwright.core.storage.object_stores import is_url
from maskwright.core.text.amounts import listed
from maskwright.data.files import COMPRESSIONS
from maskwright.data.sources.objects import fetch, list_objects
from maskwright.data.tables import TABLE_SUFFIXES, TableFormat
from maskwright.reporting.reporter import Progress, no_progress

PREPARED = "prepared.json"
"""The record of a folder of prepared text (`data.prepared`), which is not a corpus to clean."""

TextDocuments = Literal["auto", "blank_lines", "files", "wiki_titles"]
FileFormat = Literal["text", "markdown"] | TableFormat
FORMATS: dict[str, FileFormat] = {
    ".txt": "text",
    ".text": "text",
    ".tokens": "text",
    ".md": "markdown",
    ".markdown": "markdown",
    **TABLE_SUFFIXES,
}
_READ = ".txt, .md, .jsonl, .csv, .tsv, .parquet (all but .parquet also with .gz or .zst)"
_HUB_NAME = re.compile(
    r"(?P<name>\w[\w.-]*(?:/[\w.-]+)?)(?:\[(?:(?P<config>[\w.-]+)\s*,\s*)?(?P<split>[^\]\[,]+)\])?(?:#(?P<column>.+))?"
)


@dataclass(frozen=True, slots=True)
class HubDataset:
    """A dataset of the Hugging Face hub: `name`, optional configuration, split."""

    name: str
    config: str | None
    split: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One CORPUS argument, resolved.

    Attributes:
        name: Short name, unique among the sources of a corpus.
        weight: Weight in the mixture; None if not given.
        files: Files in reading order (kind "files").
        column: The column to read, None to find it.
        dataset: The dataset (kind "hub").
        ignored_files: Suffixes of ignored files in the folder, with their number.
    """

    name: str
    weight: float | None = None
    kind: Literal["files", "hub", "docstrings"] = "files"
    files: tuple[Path, ...] = ()
    column: str | None = None
    dataset: HubDataset | None = None
    ignored_files: tuple[tuple[str, int], ...] = ()


def file_format(path: Path) -> FileFormat | None:
    """Return a file's format, by its suffix without `.gz` or `.zst`; None if it is not supported."""
    *_, before, last = ["", "", *(suffix.lower() for suffix in path.suffixes)]
    if last in COMPRESSIONS:
        # Parquet is compressed inside and needs random access, which a compressed stream does not give.
        return FORMATS.get(before) if before != ".parquet" else None
    return FORMATS.get(last)


def resolve_sources(
    corpus: Sequence[str | Path], *, cache: Path | None = None, progress: Progress = no_progress
) -> tuple[Source, ...]:
    """Turn CORPUS arguments (or a single one) into sources with their files; only folders are read, and URLs fetched.

    Args:
        cache: Cache directory for what is fetched; None for `core.storage.files.cache_folder()`.

    Raises DataError, which suggests the nearest existing name, if an argument names nothing that can be read;
    DeviceError if a URL cannot be accessed.
    """
    arguments = [corpus] if isinstance(corpus, str | Path) else list(corpus)
    if not arguments:
        raise DataError("no corpus was given", allowed=f"files or folders with {_READ}")
    remote = partial(_from_url, cache=cache or cache_folder(), progress=progress)
    return _with_unique_names([_resolve(str(argument), remote) for argument in arguments])


def _resolve(argument: str, remote: Callable[[str], Source]) -> Source:
    argument = os.path.expanduser(argument)
    if not argument.strip():
        raise DataError("a corpus argument is empty", allowed=f"files or folders with {_READ}")
    if Path(argument).exists():
        return _from_path(Path(argument))
    stem, weight = _split_weight(argument)
    if weight is not None:
        return replace(_resolve(stem, remote), weight=weight)
    if argument == "docstrings":
        return Source(name="docstrings", kind="docstrings")
    path, _, column = argument.rpartition("#")
    if path and column and (Path(path).exists() or glob.has_magic(path) or is_url(path)):
        return replace(_resolve(path, remote), column=column)
    if is_url(argument):
        return remote(argument)
    # `owner/name[train]` is also a valid glob: it is one only if some file matches it.
    if glob.has_magic(argument) and (glob.glob(argument) or not _HUB_NAME.fullmatch(argument)):
        return _from_glob(argument)
    if not _looks_like_path(argument) and (name := _HUB_NAME.fullmatch(argument)):
        dataset = HubDataset(name["name"], name["config"], name["split"] or "train")
        return Source(name=argument, kind="hub", dataset=dataset, column=name["column"])
    raise _missing(argument)


def _split_weight(argument: str) -> tuple[str, float | None]:
    stem, colon, number = argument.rpartition(":")
    if not colon or not stem or not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", number):
        return argument, None
    weight = float(number)
    if not weight > 0 or math.isinf(weight):
        raise DataError(
            f"the weight of {stem!r} is {number}",
            allowed="positive numbers",
            hint="Leave the source out instead of weighing it 0",
        )
    return stem, weight


def _from_path(path: Path) -> Source:
    if path.is_dir():
        if (path / PREPARED).is_file():
            raise _is_prepared(str(path))
        files, ignored_files = _divide(_walk(path))
        if not files:
            others = listed((f"{count} {suffix}" for suffix, count in ignored_files), 8) or "nothing else"
            raise DataError(f"the folder {path} contains no text files; it contains {others}", allowed=_READ)
        return Source(name=path.resolve().name or str(path), files=files, ignored_files=ignored_files)
    if file_format(path) is None:
        suffix = next((s for s in reversed(path.suffixes) if s.lower() not in COMPRESSIONS), "")
        kind = f"files ending in {suffix!r}" if suffix else "files without a suffix"
        raise DataError(f"{path}: {kind} are not read", allowed=_READ, hint="Convert or rename it.")
    if not path.is_file():
        raise DataError(f"{path} is not a regular file but a pipe or a device", hint="Save its content as a file.")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty (0 bytes)", hint="Give a file with text, or leave this one out.")
    return Source(name=path.name, files=(path,))


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and its folders in order, without hidden ones."""

    def refuse(error: OSError) -> None:
        hint = "Check that you may read it."
        raise DataError(f"cannot list {error.filename}: {error.strerror}", hint=hint) from error

    for directory, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(directory, name) for name in sorted(names) if not name.startswith("."))


def _divide(paths: Iterable[Path]) -> tuple[tuple[Path, ...], tuple[tuple[str, int], ...]]:
    """Return the files that are read, and the suffixes of the others with their number."""
    files: list[Path] = []
    others: Counter[str] = Counter()
    for path in paths:
        if file_format(path) is None:
            others["".join(path.suffixes[-2:]) or "without suffix"] += 1
        elif path.exists() and not path.is_file():
            others["pipe or device"] += 1
        else:
            files.append(path)
    return tuple(files), tuple(others.most_common())


def _from_glob(pattern: str) -> Source:
    matches = [Path(match) for match in sorted(glob.glob(pattern, recursive=True))]
    if not matches:
        hint = _suggestion(Path(pattern).parent, Path(pattern).name)
        raise DataError(f"nothing matches the pattern {pattern!r}", hint=hint)
    files, ignored_files = _divide(path for path in matches if not path.is_dir())
    if not files:
        match = f"the first match is {matches[0]}"
        raise DataError(f"no file that matches {pattern!r} can be read ({match})", allowed=_READ)
    return Source(name=Path(pattern).name, files=files, ignored_files=ignored_files)


def _from_url(url: str, *, cache: Path, progress: Progress) -> Source:
    objects = {each.name: each for each in list_objects(url)}
    if any(name.name == PREPARED for name in objects):
        raise _is_prepared(url)
    names, ignored_files = _divide(objects)
    if not names:
        suffixes = listed((f"{count} {suffix}" for suffix, count in ignored_files), 8) or "nothing"
        raise DataError(f"{url} names no text files; it names {suffixes}", allowed=_READ)
    files = fetch([objects[name] for name in names], cache, progress)
    return Source(name=Path(url).name, files=files, ignored_files=ignored_files)


def _is_prepared(argument: str) -> DataError:
    return DataError(
        f"{argument} is prepared text, on which only pretrain trains, as its one CORPUS argument",
        hint="Give the corpus that it was prepared from.",
    )


def _looks_like_path(argument: str) -> bool:
    path = Path(argument.partition("#")[0])
    if path.is_absolute() or argument.startswith((".", "~")) or "\\" in argument or len(path.parts) > 2:
        return True
    if file_format(path) is not None or path.suffix.lower() in (".json", ".pdf", ".html", *COMPRESSIONS):
        return True
    if len(path.parts) == 2:
        return path.parent.is_dir()
    # A single word may be a hub dataset ("wikitext") or a misspelt file here: a close name here decides.
    return nearest(argument, _names_in(Path())) is not None


def _missing(argument: str) -> DataError:
    path = Path(argument.partition("#")[0])
    while not path.parent.is_dir() and path != path.parent:
        path = path.parent
    return DataError(
        f"no such file or folder: {argument}",
        allowed="a file, a folder, a glob, `docstrings`, or a dataset of the Hugging Face hub as owner/name",
        hint=_suggestion(path.parent, path.name),
    )


def _suggestion(folder: Path, name: str) -> str:
    guess = nearest(name, _names_in(folder))
    return f"Did you mean '{folder / guess}'?" if guess else ""


def _names_in(folder: Path) -> Iterable[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _with_unique_names(sources: list[Source]) -> tuple[Source, ...]:
    named: dict[str, Source] = {}
    for source in sources:
        name, number = source.name, 2
        while name in named:
            name, number = f"{source.name} ({number})", number + 1
        named[name] = replace(source, name=name)
    return tuple(named.values())
