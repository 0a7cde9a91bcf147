"""The corpus as training reads it: one long stream of tokens in memory-mapped files, with its boundaries.

Nothing is read until it is asked for, so opening takes no time or memory whatever the size, and processes
that read the same folder share its pages.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from maskwright.core.flat_arrays import Runs
from maskwright.core.types import Documents, IntArray, TakenTokens
from maskwright.data.corpus_manifest import (
    COLLOCATIONS,
    DATA_CARD,
    DOCUMENT_ENDS,
    DOCUMENT_SENTENCES,
    DOCUMENT_SOURCES,
    SENTENCE_ENDS,
    TOKEN_COUNTS,
    TOKENIZER,
    Manifest,
    damaged,
    level_starts_file,
    read_manifest,
    tokens_file,
    verify_files,
    word_starts_file,
)
from maskwright.data.tokenizer import Tokenizer

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
        self._level_starts = {
            level: [_mapped(folder / level_starts_file(level, shard)) for shard in range(manifest.num_shards)]
            for level in manifest.levels
        }

    @classmethod
    def open(cls, folder: Path, *, checksum_of: Callable[[Path], str] | None = None) -> "Corpus":
        """Open a folder of token shards; the sizes of its files are compared with the manifest.

        Args:
            folder: Where they are.
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
    def levels(self) -> Mapping[str, Mapping[str, Any]]:
        """For each level of units stored beside words, what was found (see `words.level_facts`)."""
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
            level_starts: For each level that is stored, shape (sum of lengths,).
        """
        starts, ends = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)
        lengths = ends - starts
        total = int(lengths.sum())
        ids, word_starts = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.bool_)
        level_starts = {level: np.empty(total, dtype=np.bool_) for level in self._level_starts}
        for shard, runs in self._runs(starts, ends, np.cumsum(lengths) - lengths, Runs):
            runs.copy(self._tokens[shard], ids)
            runs.unpack(self._word_starts[shard], word_starts)
            for level, unpacked in level_starts.items():
                runs.unpack(self._level_starts[level][shard], unpacked)
        return TakenTokens(ids, word_starts, level_starts)

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
