"""Writing the token stream: ids in two or four bytes, starts of words and levels in one bit each, in equal shards."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from maskwright.core.types import BoolArray, IntArray
from maskwright.data.array_writer import ArrayWriter
from maskwright.data.corpus_manifest import level_starts_file, tokens_file, word_starts_file


class TokenWriter:
    """Appends to the stream; a context manager.

    Args:
        folder: Where the shards go.
        dtype: Type of the ids.
        shard_tokens: Tokens in each shard but the last; a multiple of 8.
        levels: Levels of units whose starts are stored beside those of words.
    """

    def __init__(self, folder: Path, dtype: "np.dtype[Any]", shard_tokens: int, levels: Sequence[str] = ()) -> None:
        self.count = 0
        self._levels = tuple(levels)
        self._folder = folder
        self._dtype = dtype
        self._shard_tokens = shard_tokens
        self._files = ExitStack()
        # Starts of words and levels, a row each, that do not fill a byte yet.
        self._waiting = np.empty((1 + len(self._levels), 0), dtype=np.bool_)

    def append(self, ids: IntArray, word_starts: BoolArray, level_starts: Mapping[str, BoolArray] = {}) -> None:
        """Append tokens. Shapes (T,)."""
        starts = np.stack([word_starts, *(level_starts[level] for level in self._levels)])
        done = 0
        while done < len(ids):
            place = self.count % self._shard_tokens
            if place == 0:
                self._next_shard()
            end = min(len(ids), done + self._shard_tokens - place)
            self._ids.append(ids[done:end])
            self._waiting = np.concatenate([self._waiting, starts[:, done:end]], axis=1)
            self._write_bits(self._waiting.shape[1] // 8 * 8)
            self.count += end - done
            done = end

    def close(self) -> None:
        """Finish the last shard."""
        if self.count:
            self._write_bits(self._waiting.shape[1])
        self._files.close()

    def _write_bits(self, count: int) -> None:
        for file, row in zip(self._starts, self._waiting, strict=True):
            file.append(np.packbits(row[:count], bitorder="little"))
        self._waiting = self._waiting[:, count:]

    def _next_shard(self) -> None:
        # A full shard holds whole bytes, so no bit is waiting here.
        self._files.close()
        shard = self.count // self._shard_tokens
        self._ids = self._files.enter_context(ArrayWriter(self._folder / tokens_file(shard), self._dtype))
        names = [word_starts_file(shard), *(level_starts_file(level, shard) for level in self._levels)]
        self._starts = [self._files.enter_context(ArrayWriter(self._folder / name, "u1")) for name in names]

    def __enter__(self) -> "TokenWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
