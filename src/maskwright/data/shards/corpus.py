"""A corpus of token shards: the manifest and the memory-mapped arrays that training reads.

Opening takes no time or memory for any size, and processes that read the same directory share its pages.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from maskwright.core.errors import DataError
from maskwright.core.files import checksum, write_json
from maskwright.core.flat_arrays import Runs
from maskwright.core.types import Documents, IntArray, TakenTokens
from maskwright.data.tokenizers.tokenizer import Tokenizer

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


def span_starts_file(level: str, shard: int) -> str:
    """Return the name of a shard's starts of units of a level, stored as word starts are."""
    return f"{level}_starts-{shard:05d}.npy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a folder of token shards says of itself.

    Attributes:
        fingerprint: Identifies the shards: text, tokenizer and format.
        clean_fingerprint, tokenizer_fingerprint, words_fingerprint: What they were made from.
        words: What counts as a word, a phrase and an entity (`words_spec.Words` as plain data).
        levels: For each level of units stored beside words, what was found (`words.span_facts`).
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
        todo="Delete that folder and run the same command again; it is rebuilt.",
    )


T = TypeVar("T")


@final
class Corpus:
    """Token shards opened for reading; made by `open`. T tokens, S sentences, D documents, V vocabulary.

    Attributes:
        folder: Where they are.
        manifest: What they say of themselves.
        documents: Boundaries of sentences and documents (memory-mapped).
        document_ends: Shape (D,), int64, ascending: the token offset where each document ends.
        document_sources: Shape (D,), int32: the number of the source each document came from.
        token_counts: Shape (V,), int64: how often each id occurs.
        clean_card: The data card of the clean corpus.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        sentences = _mapped(folder / DOCUMENT_SENTENCES)
        self.documents = Documents(_mapped(folder / SENTENCE_ENDS), first=sentences[:-1], last=sentences[1:])
        self.document_ends: NDArray[np.int64] = _mapped(folder / DOCUMENT_ENDS)
        self.document_sources: NDArray[np.int32] = _mapped(folder / DOCUMENT_SOURCES)
        self.token_counts: NDArray[np.int64] = np.load(folder / TOKEN_COUNTS)
        self.clean_card: dict[str, Any] = json.loads((folder / DATA_CARD).read_text(encoding="utf-8"))
        self._tokens = [_mapped(folder / tokens_file(shard)) for shard in range(manifest.num_shards)]
        self._word_starts = [_mapped(folder / word_starts_file(shard)) for shard in range(manifest.num_shards)]
        self._span_starts = {
            level: [_mapped(folder / span_starts_file(level, shard)) for shard in range(manifest.num_shards)]
            for level in manifest.levels
        }

    @classmethod
    def open(cls, folder: Path, *, checksum_of: Callable[[Path], str] | None = None) -> "Corpus":
        """Open a folder of token shards; the sizes of its files are compared with the manifest.

        Args:
            checksum_of: If given, the checksums of all files are compared too, before any is mapped.

        Raises:
            DataError: If the folder is damaged or of another version.
        """
        manifest = read_manifest(folder)
        if checksum_of is not None:
            verify_files(folder, manifest, checksum_of)
        try:
            return cls(folder, manifest)
        except (OSError, ValueError) as error:
            raise damaged(folder, str(error)) from error

    def __reduce__(self) -> tuple[object, ...]:
        # Another process maps the files itself instead of being sent their content.
        return Corpus.open, (self.folder,)

    @property
    def num_tokens(self) -> int:
        """T."""
        return self.manifest.num_tokens

    @property
    def num_characters(self) -> int:
        """Characters of the clean text."""
        return self.manifest.num_characters

    @property
    def num_bytes(self) -> int:
        """Bytes of the clean text in UTF-8."""
        return self.manifest.num_bytes

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.manifest.vocab_size

    @property
    def fingerprint(self) -> str:
        """Identifies the shards: text, tokenizer and format."""
        return self.manifest.fingerprint

    @property
    def source_names(self) -> tuple[str, ...]:
        """A short name of each source."""
        return tuple(self.manifest.source_names)

    @property
    def span_facts(self) -> Mapping[str, Mapping[str, Any]]:
        """For each level of units stored beside words, what was found (see `words.span_facts`)."""
        return self.manifest.levels

    @property
    def collocations(self) -> Path | None:
        """The phrases found in the corpus itself, one a line, if they were looked for."""
        path = self.folder / COLLOCATIONS
        return path if path.is_file() else None

    def tokenizer(self) -> Tokenizer:
        """Read the tokenizer that made these tokens; it is kept beside them."""
        return Tokenizer.from_folder(self.folder / TOKENIZER)

    def take(self, starts: IntArray, ends: IntArray) -> TakenTokens:
        """Return the tokens of ranges of the stream, concatenated in the order given.

        Args:
            starts: Shape (K,), token offsets where ranges begin.
            ends: Shape (K,), one past each range's last token; `starts <= ends <= num_tokens`.

        Returns:
            ids: Shape (sum of lengths,), int32.
            word_starts: Shape (sum of lengths,), True where a token begins a word.
            span_starts: For each level that is stored, shape (sum of lengths,).
        """
        starts, ends = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)
        lengths = ends - starts
        total = int(lengths.sum())
        ids, word_starts = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.bool_)
        span_starts = {level: np.empty(total, dtype=np.bool_) for level in self._span_starts}
        for shard, runs in self._runs(starts, ends, np.cumsum(lengths) - lengths, Runs):
            runs.copy(self._tokens[shard], ids)
            runs.unpack(self._word_starts[shard], word_starts)
            for level, unpacked in span_starts.items():
                runs.unpack(self._span_starts[level][shard], unpacked)
        return TakenTokens(ids, word_starts, span_starts)

    def _runs(
        self, starts: IntArray, ends: IntArray, places: IntArray, made: Callable[[IntArray, IntArray, IntArray], T]
    ) -> Iterator[tuple[int, T]]:
        """Cut ranges where shards end; give for each shard what is made of offsets in it, places and lengths."""
        some = ends > starts
        starts, ends, places = starts[some], ends[some], places[some]
        size = self.manifest.shard_tokens
        first = starts // size
        if len(first) and (first == first[0]).all() and ends.max() <= (first[0] + 1) * size:
            yield int(first[0]), made(starts - first * size, places, ends - starts)
            return
        pieces = (ends - 1) // size - first + 1
        of_range = np.repeat(np.arange(len(starts)), pieces)
        shards = first[of_range] + np.arange(len(of_range)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        begins, stops = np.maximum(starts[of_range], shards * size), np.minimum(ends[of_range], (shards + 1) * size)
        places = places[of_range] + begins - starts[of_range]
        order = np.argsort(shards, kind="stable")
        for each in np.split(order, np.flatnonzero(np.diff(shards[order])) + 1) if len(order) else ():
            shard = int(shards[each[0]])
            yield shard, made(begins[each] - shard * size, places[each], (stops - begins)[each])


def _mapped(path: Path) -> NDArray[Any]:
    # A plain array over the map: indexing numpy's memmap class itself is several times slower.
    return np.asarray(np.load(path, mmap_mode="r"))
