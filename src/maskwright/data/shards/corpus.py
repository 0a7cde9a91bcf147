"""A corpus of token shards: the manifest and the memory-mapped arrays that training reads.

Processes that read the same directory share its pages. Tokens and starts of words and spans are compared with
checksums when they are first read (`checked_array`). The ends of sentences and documents, 8 bytes each,
are compared at every opening by every rank, so opening takes time in proportion to the number of sentences.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, final
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from maskwright.core.errors import DataError
from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.randomness import keys
from maskwright.core.storage.checksums import refuse_unreadable
from maskwright.core.storage.files import read_json
from maskwright.core.types import AnnotatedTokens, Documents, IntArray
from maskwright.data.shards.checked_array import CheckedArray
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

    def __init__(self, folder: Path) -> None:
        manifest = read_json(folder / MANIFEST)
        if (saved := (manifest["format"], manifest["version"])) != (FORMAT, VERSION):
            raise ValueError(f"{MANIFEST} is of the format {saved}, this program reads {(FORMAT, VERSION)}")
        self.folder = folder
        self.fingerprint: str = manifest["fingerprint"]
        self.num_tokens: int = manifest["num_tokens"]
        self.span_facts: Mapping[str, Mapping[str, Any]] = manifest["levels"]
        self._shard_tokens: int = manifest["shard_tokens"]
        sentences = _mapped(folder / DOCUMENT_SENTENCES)
        self.documents = Documents(_mapped(folder / SENTENCE_ENDS), first=sentences[:-1], last=sentences[1:])
        self.document_ends: NDArray[np.int64] = _mapped(folder / DOCUMENT_ENDS)
        self.document_sources: NDArray[np.int32] = _mapped(folder / DOCUMENT_SOURCES)
        self.token_counts: NDArray[np.int64] = np.load(folder / TOKEN_COUNTS)
        with np.load(folder / BLOCK_CHECKSUMS) as checksums:

            def opened(name_of: Callable[[int], str]) -> list[CheckedArray]:
                names = map(name_of, range(-(-self.num_tokens // self._shard_tokens)))
                return [CheckedArray(folder / name, checksums[name]) for name in names]

            self._tokens = opened(tokens_file)
            self._starts = {kind: opened(partial(starts_file, kind)) for kind in ("word", *self.span_facts)}

    @classmethod
    def open(cls, folder: Path) -> "Corpus":
        """Open a folder of token shards; DataError if the folder is damaged or of another version."""
        try:
            return cls(folder)
        except (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile) as error:
            refuse_unreadable(folder, error)
            raise DataError(
                f"the token shards in {folder} are damaged: {error}",
                hint="Delete that folder and run the same command again; it is rebuilt.",
            ) from error

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

    def gather(self, starts: IntArray, ends: IntArray) -> AnnotatedTokens:
        """Return the tokens of K ranges [start, end) of the stream, concatenated in the order given. Shapes (K,).

        Raises DataError if the tokens are damaged.
        """
        starts, ends = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)
        total = int((ends - starts).sum())
        ids = np.empty(total, dtype=np.int32)
        starts_of = {kind: np.empty(total, dtype=np.bool_) for kind in self._starts}
        for shard, begins, stops, target_starts in self._parts(starts, ends):
            tokens, lengths = self._tokens[shard], stops - begins
            sources, targets = concatenated_ranges(begins, lengths), concatenated_ranges(target_starts, lengths)
            tokens.compare(begins, stops)
            ids[targets] = tokens.values[sources]
            for kind, unpacked in starts_of.items():
                packed = self._starts[kind][shard]
                packed.compare(begins // 8, (stops + 7) // 8)
                unpacked[targets] = (packed.values[sources >> 3] >> (sources & 7).astype(np.uint8)) & 1
        return AnnotatedTokens(ids, starts_of.pop("word"), starts_of)

    def _parts(self, starts: IntArray, ends: IntArray) -> Iterator[tuple[int, IntArray, IntArray, IntArray]]:
        """Cut ranges at the ends of shards; yield each shard with its starts and ends, and where they are copied to."""
        lengths, size = ends - starts, self._shard_tokens
        target_starts = np.cumsum(lengths) - lengths
        first, last = starts // size, (ends - 1) // size
        for shard in np.unique(concatenated_ranges(first, np.where(lengths, last - first + 1, 0))).tolist():
            begins, stops = np.maximum(starts, shard * size), np.minimum(ends, (shard + 1) * size)
            inside = np.flatnonzero(begins < stops)
            targets, begins, stops = target_starts + begins - starts, begins - shard * size, stops - shard * size
            yield shard, begins[inside], stops[inside], targets[inside]


def sample_sentences(
    sources: Sequence[Documents],
    weights: Sequence[float],
    gather: Callable[[IntArray, IntArray], AnnotatedTokens],
    most: int,
) -> tuple[AnnotatedTokens, IntArray]:
    """Return whole sentences of random documents in the corpus's order, at most `most` tokens, and their ends.

    Each source has its share of `most` tokens by its weight, or fewer if it has no more.
    """
    starts, ends = list[IntArray](), list[IntArray]()
    for documents, weight in zip(sources, weights, strict=True):
        limit = int(most * weight / sum(weights))
        order = documents.pick(np.argsort(keys(0, "sample of sentences", 0, np.arange(len(documents))), kind="stable"))
        totals = np.cumsum(order.bounds(order.last) - order.bounds(order.first))
        order = order.pick(np.arange(min(len(order), int(np.searchsorted(totals, limit)) + 1)))
        sentences = concatenated_ranges(order.first, order.last - order.first)
        lengths = order.sentence_ends[sentences] - order.bounds(sentences)
        sentences = np.sort(sentences[: int(np.searchsorted(np.cumsum(lengths), limit, side="right"))])
        starts.append(order.bounds(sentences))
        ends.append(np.asarray(order.sentence_ends[sentences]))
    first, last = np.concatenate(starts), np.concatenate(ends)
    return gather(first, last), np.cumsum(last - first)


def _mapped(path: Path) -> NDArray[Any]:
    # Indexing a plain array over the map is several times faster than numpy's memmap class.
    return np.asarray(np.load(path, mmap_mode="r"))
