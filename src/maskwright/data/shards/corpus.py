"""A corpus of token shards: the manifest and the memory-mapped arrays that training reads.

Processes that read the same directory share its pages. Tokens and starts of words and spans are compared with
checksums when they are first read (`core.checksums`). The ends of sentences and documents, 8 bytes each, are compared
at every opening by every rank, so opening takes time in proportion to the number of sentences.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, final
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from maskwright.core.checksums import CheckedArray, refuse_unreadable
from maskwright.core.errors import DataError
from maskwright.core.files import read_json
from maskwright.core.flat_arrays import Runs, concatenated_ranges
from maskwright.core.types import Documents, IntArray, TakenTokens
from maskwright.data.tokenizers.tokenizer import Tokenizer

FORMAT = "maskwright token shards"
VERSION = 2
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer"

SENTENCE_ENDS = "sentence_ends.npy"
DOCUMENT_SENTENCES = "document_sentences.npy"
DOCUMENT_ENDS = "document_ends.npy"
DOCUMENT_SOURCES = "document_sources.npy"
TOKEN_COUNTS = "token_counts.npy"
BLOCK_CHECKSUMS = "block_checksums.npz"
CHECKED_WHEN_READ = ("tokens-*.npy", "*_starts-*.npy")
COLLOCATIONS = "collocations.txt"


def tokens_file(shard: int) -> str:
    """Return the name of a shard's ids."""
    return f"tokens-{shard:05d}.npy"


def starts_file(kind: str, shard: int) -> str:
    """Return the name of a shard's starts of words ("word") or spans of a kind: one bit per token, lowest first."""
    return f"{kind}_starts-{shard:05d}.npy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Description of a folder of token shards.

    Attributes:
        fingerprint: Identifies the shards: text, tokenizer and format.
        words: What counts as a word, a phrase and an entity (`words.spec.Words` as plain data).
        levels: For each span kind, what was found (`words.span_facts`).
        num_characters, num_bytes: Of the clean text.
        dropped_sentences, dropped_documents: Those without any token.
        shard_tokens: Tokens in each shard but the last.
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

    @property
    def num_shards(self) -> int:
        """Number of shards."""
        return -(-self.num_tokens // self.shard_tokens)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest; DataError if it is missing, unreadable or of another version."""
    try:
        values = read_json(folder / MANIFEST)
        found = (values.pop("format"), values.pop("version"))
        manifest = Manifest(**{field.name: values[field.name] for field in fields(Manifest)})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        refuse_unreadable(folder / MANIFEST, error)
        raise damaged(folder, f"its {MANIFEST} cannot be read ({error})") from error
    if found != (FORMAT, VERSION):
        raise damaged(folder, f"its {MANIFEST} is of the format {found}, this program reads {(FORMAT, VERSION)}")
    return manifest


def damaged(folder: Path, problem: str) -> DataError:
    """Return the error for a damaged folder."""
    return DataError(
        f"the token shards in {folder} are damaged: {problem}",
        todo="Delete that folder and run the same command again; it is rebuilt.",
    )


@final
class Corpus:
    """Token shards, memory-mapped (see `open`). D documents, V vocabulary.

    Attributes:
        fingerprint: Identifies text, tokenizer and format.
        num_tokens: Tokens of the text.
        span_facts: For each span kind, what was found (`words.span_facts`).
        documents: Boundaries of sentences and documents.
        document_ends: Shape (D,), int64, ascending: the token offset where each document ends.
        document_sources: Shape (D,), int32: the number of each document's source.
        token_counts: Shape (V,), int64: count of each id.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self.fingerprint = manifest.fingerprint
        self.num_tokens = manifest.num_tokens
        self.span_facts: Mapping[str, Mapping[str, Any]] = manifest.levels
        sentences = _mapped(folder / DOCUMENT_SENTENCES)
        self.documents = Documents(_mapped(folder / SENTENCE_ENDS), first=sentences[:-1], last=sentences[1:])
        self.document_ends: NDArray[np.int64] = _mapped(folder / DOCUMENT_ENDS)
        self.document_sources: NDArray[np.int32] = _mapped(folder / DOCUMENT_SOURCES)
        self.token_counts: NDArray[np.int64] = np.load(folder / TOKEN_COUNTS)
        with np.load(folder / BLOCK_CHECKSUMS) as checksums:

            def opened(name_of: Callable[[int], str]) -> list[CheckedArray]:
                names = map(name_of, range(manifest.num_shards))
                return [CheckedArray(folder / name, checksums[name]) for name in names]

            self._tokens = opened(tokens_file)
            self._starts = {kind: opened(partial(starts_file, kind)) for kind in ("word", *manifest.levels)}

    @classmethod
    def open(cls, folder: Path) -> "Corpus":
        """Open a folder of token shards.

        Raises:
            DataError: If the folder is damaged or of another version.
        """
        manifest = read_manifest(folder)
        try:
            return cls(folder, manifest)
        except (OSError, ValueError, KeyError, BadZipFile) as error:
            refuse_unreadable(folder, error)
            raise damaged(folder, str(error)) from error

    def __reduce__(self) -> tuple[object, ...]:
        # Another process maps the files itself.
        return Corpus.open, (self.folder,)

    @property
    def collocations(self) -> Path | None:
        """The phrases found in the corpus, one per line, if any were wanted."""
        path = self.folder / COLLOCATIONS
        return path if path.is_file() else None

    def tokenizer(self) -> Tokenizer:
        """Read the tokenizer of these tokens, which is stored with them."""
        return Tokenizer.from_folder(self.folder / TOKENIZER)

    def take(self, starts: IntArray, ends: IntArray) -> TakenTokens:
        """Return the tokens of K ranges [start, end) of the stream, concatenated in the order given. Shapes (K,).

        Raises:
            DataError: If the tokens are not what was written.
        """
        starts, ends = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)
        total = int((ends - starts).sum())
        ids = np.empty(total, dtype=np.int32)
        starts_of = {kind: np.empty(total, dtype=np.bool_) for kind in self._starts}
        for shard, runs in self._runs(starts, ends):
            tokens, stops = self._tokens[shard], runs.starts + runs.lengths
            tokens.compare(runs.starts, stops)
            runs.copy(tokens.values, ids)
            for kind, unpacked in starts_of.items():
                packed = self._starts[kind][shard]
                packed.compare(runs.starts // 8, (stops + 7) // 8)
                runs.unpack(packed.values, unpacked)
        return TakenTokens(ids, starts_of.pop("word"), starts_of)

    def _runs(self, starts: IntArray, ends: IntArray) -> Iterator[tuple[int, Runs]]:
        """Cut ranges at the ends of shards; yield each shard with its ranges and where they are copied to."""
        lengths, size = ends - starts, self.manifest.shard_tokens
        places = np.cumsum(lengths) - lengths
        first, last = starts // size, (ends - 1) // size
        for shard in np.unique(concatenated_ranges(first, np.where(lengths, last - first + 1, 0))).tolist():
            begins, stops = np.maximum(starts, shard * size), np.minimum(ends, (shard + 1) * size)
            here = np.flatnonzero(begins < stops)
            yield shard, Runs(begins[here] - shard * size, (places + begins - starts)[here], (stops - begins)[here])


def _mapped(path: Path) -> NDArray[Any]:
    # Indexing a plain array over the map is several times faster than numpy's memmap class.
    return np.asarray(np.load(path, mmap_mode="r"))
