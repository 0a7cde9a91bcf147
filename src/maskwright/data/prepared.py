"""Prepared text: a folder, or a URL, with clean text and its tokens, on which a run trains without the corpus.

prepared.json    the names of the two folders, the corpus arguments' names and weights, cleaning and tokenizer
clean-KEY/       the clean text (`cleaning.store`)
tokens-KEY/      token shards and their tokenizer (`shards`)
"""

import glob
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from maskwright.core.errors import DataError
from maskwright.core.spec import fingerprint
from maskwright.core.storage.checksums import CONTENTS, read_record, record_text, write_record
from maskwright.core.storage.files import check_writable, parse_json
from maskwright.core.storage.object_stores import download_folder, is_url, open_store, store_problems
from maskwright.data.sources.arguments import PREPARED, file_format
from maskwright.reporting.reporter import Progress

_CACHED = re.compile(r"\.|prepared\.json|checksums\.json|[a-z-]+-[0-9a-f]{16}")
"""Names in a folder of prepared text, which is a cache directory, and of unfinished ones."""
_FORMAT, _VERSION = "maskwright prepared text", 1
_AGAIN = "Prepare the text again: `maskwright prepare`."


@dataclass(frozen=True, slots=True)
class PreparedText:
    """Prepared text on this machine.

    Attributes:
        clean, tokens: Its two folders.
        names, weights: Of each CORPUS argument.
        cleaning, tokenizer: The settings, as plain data; `tokenizer` is None if a tokenizer directory was given.
        digest: Identifies every byte of text and tokens.
    """

    clean: Path
    tokens: Path
    names: tuple[str, ...]
    weights: tuple[float | None, ...]
    cleaning: Mapping[str, Any]
    tokenizer: Mapping[str, Any] | None
    digest: str


def write_prepared(
    out: str | Path,
    clean: Path,
    tokens: Path,
    described: Mapping[str, Any],
    progress: Progress,
) -> PreparedText:
    """Describe prepared text: in the folder `out` that holds both folders, or at a URL, to which they are copied.

    Args:
        described: names, weights, cleaning and tokenizer, as in `PreparedText`.
    """
    digest = fingerprint([read_record(folder / CONTENTS) for folder in (clean, tokens)])
    files = {
        path.relative_to(clean.parent).as_posix(): path.stat().st_size
        for folder in (clean, tokens)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    record = {
        "format": _FORMAT,
        "version": _VERSION,
        "clean": clean.name,
        "tokens": tokens.name,
        "digest": digest,
        **described,
        "files": files,
    }
    if not is_url(str(out)):
        write_record(Path(out) / PREPARED, record)
        return _described(record, clean.parent)
    system, path = open_store(str(out))
    done, total = 0, sum(files.values())
    with store_problems(str(out)):
        for name, size in files.items():
            # An object of this size is that of an interrupted call: names contain the fingerprint of the content.
            if not system.exists(f"{path}/{name}") or system.info(f"{path}/{name}")["size"] != size:
                system.makedirs(f"{path}/{name}".rpartition("/")[0], exist_ok=True)
                system.put_file(str(clean.parent / name), f"{path}/{name}")
            done += size
            progress("uploading (bytes)", done, total)
        # Last: without it there is no prepared text.
        system.pipe_file(f"{path}/{PREPARED}", record_text(record).encode())
    return _described(record, clean.parent)


def check_target(out: str | Path) -> None:
    """Raise DataError if a folder contains something else, DeviceError if a folder or URL cannot be written."""
    if not is_url(str(out)):
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        if foreign := sorted(path.name for path in folder.iterdir() if not _CACHED.match(path.name)):
            raise DataError(
                f"{folder} contains {foreign[0]!r}, which is not prepared text",
                allowed="a new or empty folder, or one that `maskwright prepare` wrote",
                hint="Choose another --out.",
            )
        check_writable(folder)
        return
    system, path = open_store(str(out))
    with store_problems(str(out)):
        system.makedirs(path, exist_ok=True)
        system.pipe_file(f"{path}/.writable", b"")
        system.rm(f"{path}/.writable")


def find_prepared(corpus: Sequence[str | Path], cache: Path, progress: Progress) -> PreparedText | None:
    """Return the prepared text that a CORPUS argument names, None if it names something else.

    That at a URL is downloaded to the cache directory once. Raises DataError if it is damaged or of another version,
    DeviceError if a URL cannot be used or a file does not arrive complete.
    """
    if len(corpus) != 1 or glob.has_magic(argument := str(corpus[0])):
        return None
    if not is_url(argument):
        file = Path(argument).expanduser() / PREPARED
        return _described(_checked(file.read_bytes(), str(file)), file.parent) if file.is_file() else None
    if file_format(Path(argument)) is not None:
        return None  # Without a request to the store.
    system, path = open_store(argument)
    with store_problems(argument):
        if not system.exists(f"{path}/{PREPARED}"):
            return None
        record = _checked(system.cat_file(f"{path}/{PREPARED}"), f"{argument}/{PREPARED}")
    folder = cache / f"prepared-{fingerprint([argument, record])}"
    if not folder.exists():
        objects = {name: (f"{path}/{name}", size) for name, size in record["files"].items()}
        download_folder(system, argument, objects, folder, partial(progress, "downloading (bytes)"))
    return _described(record, folder)


def _checked(content: bytes, name: str) -> dict[str, Any]:
    try:
        record = parse_json(content)
        if record_text({key: value for key, value in record.items() if key != "checksum"}).encode() != content:
            raise ValueError("its checksum differs")
        if (version := (record["format"], record["version"])) != (_FORMAT, _VERSION):
            raise ValueError(f"it is of the format {version}, this program reads {(_FORMAT, _VERSION)}")
    except (ValueError, KeyError, AttributeError) as error:
        raise DataError(f"{name} cannot be used: {error}", hint=_AGAIN) from error
    return dict(record)


def _described(record: Mapping[str, Any], folder: Path) -> PreparedText:
    return PreparedText(
        clean=folder / record["clean"],
        tokens=folder / record["tokens"],
        names=tuple(record["names"]),
        weights=tuple(record["weights"]),
        cleaning=record["cleaning"],
        tokenizer=record["tokenizer"],
        digest=record["digest"],
    )
