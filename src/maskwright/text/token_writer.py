"""Writing the token stream: ids in two or four bytes, word starts in one bit, in shards of equal length."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from maskwright.core.types import BoolArray, IntArray
from maskwright.text.array_writer import ArrayWriter
from maskwright.text.corpus_manifest import tokens_file, word_starts_file


class TokenWriter:
    """Appends to the stream; a context manager.

    Args:
        folder: Where the shards go.
        dtype: Type of the ids.
        shard_tokens: Tokens in each shard but the last; a multiple of 8.
    """

    def __init__(self, folder: Path, dtype: "np.dtype[Any]", shard_tokens: int) -> None:
        self.count = 0
        self._folder = folder
        self._dtype = dtype
        self._shard_tokens = shard_tokens
        self._files = ExitStack()
        # Word starts that do not fill a byte yet.
        self._bits = np.empty(0, dtype=np.bool_)

    def append(self, ids: IntArray, word_starts: BoolArray) -> None:
        """Append tokens. Shapes (T,)."""
        done = 0
        while done < len(ids):
            place = self.count % self._shard_tokens
            if place == 0:
                self._next_shard()
            end = min(len(ids), done + self._shard_tokens - place)
            self._ids.append(ids[done:end])
            bits = np.concatenate([self._bits, word_starts[done:end]])
            whole = len(bits) - len(bits) % 8
            self._word_starts.append(np.packbits(bits[:whole], bitorder="little"))
            self._bits = bits[whole:]
            self.count += end - done
            done = end

    def close(self) -> None:
        """Finish the last shard."""
        if self.count:
            self._word_starts.append(np.packbits(self._bits, bitorder="little"))
        self._files.close()

    def _next_shard(self) -> None:
        # A full shard holds whole bytes, so no bit is waiting here.
        self._files.close()
        shard = self.count // self._shard_tokens
        self._ids = self._files.enter_context(ArrayWriter(self._folder / tokens_file(shard), self._dtype))
        self._word_starts = self._files.enter_context(ArrayWriter(self._folder / word_starts_file(shard), "u1"))

    def __enter__(self) -> "TokenWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
