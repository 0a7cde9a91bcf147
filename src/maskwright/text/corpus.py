"""The corpus as training reads it: one long stream of tokens in memory-mapped files, with its boundaries.

Nothing is read until it is asked for, so opening takes no time or memory whatever the size, and processes
that read the same folder share its pages.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import BoolArray, Documents, IntArray, TakenTokens
from maskwright.text.corpus_manifest import (
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
from maskwright.text.tokenizer import Tokenizer


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
        # Offsets of all tokens: each range counts on from where it starts.
        offsets = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        offsets += np.arange(len(offsets))
        if not len(offsets):
            nothing = np.empty(0, dtype=np.bool_)
            return TakenTokens(np.empty(0, dtype=np.int32), nothing, dict.fromkeys(self._level_starts, nothing))
        if len(self._tokens) == 1:
            return self._gather(0, offsets)
        shards = offsets // self.manifest.shard_tokens
        offsets -= shards * self.manifest.shard_tokens
        if shards[0] == shards[-1] and (shards == shards[0]).all():
            return self._gather(int(shards[0]), offsets)
        order = np.argsort(shards, kind="stable")
        parts = [
            self._gather(int(shards[places[0]]), offsets[places])
            for places in np.split(order, np.flatnonzero(np.diff(shards[order])) + 1)
        ]
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return TakenTokens(
            np.concatenate([part.ids for part in parts])[back],
            np.concatenate([part.word_starts for part in parts])[back],
            {level: np.concatenate([part.level_starts[level] for part in parts])[back] for level in self._level_starts},
        )

    def _gather(self, shard: int, offsets: NDArray[np.int64]) -> TakenTokens:
        bytes_, bits = offsets >> 3, (offsets & 7).astype(np.uint8)
        return TakenTokens(
            self._tokens[shard][offsets].astype(np.int32),
            _bits(self._word_starts[shard], bytes_, bits),
            {level: _bits(starts[shard], bytes_, bits) for level, starts in self._level_starts.items()},
        )


def _bits(packed: NDArray[Any], bytes_: NDArray[np.int64], bits: NDArray[np.uint8]) -> BoolArray:
    return ((packed[bytes_] >> bits) & 1).astype(np.bool_)


def _mapped(path: Path) -> NDArray[Any]:
    # A plain array over the map: indexing numpy's memmap class itself is several times slower.
    return np.asarray(np.load(path, mmap_mode="r"))
