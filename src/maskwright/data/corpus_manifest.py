"""The manifest of a folder of token shards: what it holds, made from what, and whether it is whole."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from maskwright.core.errors import DataError
from maskwright.core.files import checksum, write_json

FORMAT = "maskwright token shards"
VERSION = 2
MANIFEST = "manifest.json"
DATA_CARD = "data_card.json"
TOKENIZER = "tokenizer"

SENTENCE_ENDS = "sentence_ends.npy"
DOCUMENT_SENTENCES = "document_sentences.npy"
DOCUMENT_ENDS = "document_ends.npy"
DOCUMENT_SOURCES = "document_sources.npy"
TOKEN_COUNTS = "token_counts.npy"
COLLOCATIONS = "collocations.txt"


def tokens_file(shard: int) -> str:
    """Return the name of a shard's ids."""
    return f"tokens-{shard:05d}.npy"


def word_starts_file(shard: int) -> str:
    """Return the name of a shard's word starts, one bit a token, lowest bit first."""
    return f"word_starts-{shard:05d}.npy"


def level_starts_file(level: str, shard: int) -> str:
    """Return the name of a shard's starts of units of a level, stored as word starts are."""
    return f"{level}_starts-{shard:05d}.npy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a folder of token shards says of itself.

    Attributes:
        fingerprint: Identifies the shards: text, tokenizer and format.
        clean_fingerprint, tokenizer_fingerprint, words_fingerprint: What they were made from.
        words: What counts as a word, a phrase and an entity (`words_spec.Words` as plain data).
        levels: For each level of units stored beside words, what was found (`words.level_facts`).
        num_tokens, num_sentences, num_documents: What they hold.
        num_characters, num_bytes: Of the clean text.
        dropped_sentences, dropped_documents: How many held no token at all.
        vocab_size: Entries of the vocabulary.
        shard_tokens: Tokens in each shard but the last.
        source_names: A short name of each source.
        files: Name to [bytes, checksum] of every file but the manifest.
    """

    fingerprint: str
    clean_fingerprint: str
    tokenizer_fingerprint: str
    words_fingerprint: str
    words: dict[str, Any]
    levels: dict[str, dict[str, Any]]
    num_tokens: int
    num_sentences: int
    num_documents: int
    num_characters: int
    num_bytes: int
    dropped_sentences: int
    dropped_documents: int
    vocab_size: int
    shard_tokens: int
    source_names: list[str]
    files: dict[str, tuple[int, str]]

    @property
    def num_shards(self) -> int:
        """Number of shard files of either sort."""
        return -(-self.num_tokens // self.shard_tokens)


def list_files(folder: Path) -> dict[str, tuple[int, str]]:
    """Return size and checksum of every file in a folder, by name below it, in order of name."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): (path.stat().st_size, checksum(path)) for path in paths}


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest; the last file of the folder."""
    write_json(folder / MANIFEST, {"format": FORMAT, "version": VERSION, **asdict(manifest)})


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest and compare the sizes of all files with it.

    Raises:
        DataError: If it is missing, unreadable, of another version, or a file is missing or of another size.
    """
    try:
        values = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        found = (values.pop("format"), values.pop("version"))
        manifest = Manifest(**{field.name: values[field.name] for field in fields(Manifest)})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(folder, f"its {MANIFEST} cannot be read ({error})") from error
    if found != (FORMAT, VERSION):
        raise damaged(folder, f"its {MANIFEST} is of the format {found}, this program reads {(FORMAT, VERSION)}")
    for name, (size, _) in manifest.files.items():
        path = folder / name
        held = path.stat().st_size if path.is_file() else None
        if held != size:
            raise damaged(folder, f"{name} " + ("is missing" if held is None else f"has {held:,} of {size:,} bytes"))
    return manifest


def verify_files(folder: Path, manifest: Manifest, checksum_of: Callable[[Path], str] = checksum) -> None:
    """Compare the content of all files with the manifest (about a second a gigabyte that is really read).

    Args:
        folder: Where they are.
        manifest: What they were when they were written.
        checksum_of: Gives a file's checksum, e.g. `core.checksums.ChecksumBook.checksum`.

    Raises:
        DataError: If a file is not what was written.
    """
    for name, (_, written) in manifest.files.items():
        try:
            found = checksum_of(folder / name)
        except OSError as error:
            raise damaged(folder, f"{name} cannot be read ({error.strerror})") from error
        if found != written:
            raise damaged(folder, f"{name} has the checksum {found}, written was {written}")


def damaged(folder: Path, problem: str) -> DataError:
    """Return the error for a folder that is not what was written."""
    return DataError(
        f"the token shards in {folder} are damaged: {problem}",
        todo="Delete that folder and run the same command again; it is made anew.",
    )
