"""The tokenizer as the rest of the house sees it: ids and word starts out, special tokens known by role."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import tokenizers
from numpy.typing import NDArray

from maskwright.core.errors import DataError
from maskwright.core.spec import fingerprint
from maskwright.core.types import BoolArray, IntArray, SpecialTokens
from maskwright.text.tokenizer_backends import SpecialNames
from maskwright.text.tokenizer_files import read_folder, write_folder

_LOWERCASING = ("Lowercase", "BertNormalizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """One text as tokens, no special tokens added.

    Attributes:
        ids: Shape (T,), int32.
        word_starts: Shape (T,), True where a token begins a word.
        offsets: Shape (T, 2), int64: the characters [start, end) of the text that each token covers.
    """

    ids: IntArray
    word_starts: BoolArray
    offsets: NDArray[np.int64]


@final
class Tokenizer:
    """A WordPiece or byte-level BPE tokenizer with the facts that training needs.

    Args:
        backend: The tokenizer of the tokenizers library, truncation and padding switched off.
        names: Written forms of (pad, unk, cls, sep, mask).
        folder: Where it was read from, if it was.

    Attributes:
        folder: Where it was read from, if it was.
        backend: The wrapped tokenizer. Treat it as read-only.
        kind: "wordpiece" or "byte_bpe".
        special_tokens: Ids and names of the special tokens, and the vocabulary's size.
        lowercase: Whether text is lower-cased.

    Example:
        >>> tokenizer = Tokenizer.from_folder(Path("bert-base-uncased"))  # doctest: +SKIP
        >>> tokenizer.tokens(tokenizer.encode("unaffable").ids)  # doctest: +SKIP
        ['una', '##ffa', '##ble']

    Raises:
        DataError: If the tokenizer is of neither kind.
    """

    def __init__(self, backend: tokenizers.Tokenizer, names: SpecialNames, folder: Path | None = None) -> None:
        self.folder = folder
        self.backend = backend
        # Text of a corpus may contain "[SEP]"; there it is five characters, not an instruction.
        self.backend.encode_special_tokens = True
        self.kind: Literal["wordpiece", "byte_bpe"] = _kind(backend, folder)
        vocabulary = backend.get_vocab()
        pad, unk, cls, sep, mask = (vocabulary[name] for name in names)
        self.special_tokens = SpecialTokens(
            pad=pad,
            unk=unk,
            cls=cls,
            sep=sep,
            mask=mask,
            vocab_size=max(vocabulary.values()) + 1,
            names=names,
        )
        self.lowercase = any(
            part["type"] in _LOWERCASING and part.get("lowercase", True) for part in _parts(backend.normalizer)
        )

    @classmethod
    def from_folder(cls, path: Path | str) -> "Tokenizer":
        """Read a tokenizer folder (tokenizer.json, or vocab.txt, or vocab.json with merges.txt).

        Raises:
            DataError: If there is none, or it is not a WordPiece or byte-level BPE tokenizer with a mask
                token.
        """
        folder = Path(path).expanduser()
        files = read_folder(folder)
        return cls(files.backend, files.names, folder)

    def __reduce__(self) -> tuple[object, ...]:
        # The backend forgets in pickling that special tokens in text are text.
        return _restored, (self.backend.to_str(), self.special_tokens.names, self.folder)

    def save(self, folder: Path, *, max_length: int | None = None) -> None:
        """Write a folder that `from_folder` and transformers' AutoTokenizer read with identical ids.

        Args:
            folder: Where to; made if need be, files of the same names are replaced.
            max_length: Longest sequence of the model it goes with, for tools that truncate.

        Raises:
            DeviceError: If it cannot be written.
        """
        write_folder(folder, self.backend, self.special_tokens.names, lowercase=self.lowercase, max_length=max_length)

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with anything that changes an id."""
        return fingerprint([json.loads(self.backend.to_str()), self.special_tokens.names])

    @cached_property
    def _with_special_tokens(self) -> tokenizers.Tokenizer:
        copy = tokenizers.Tokenizer.from_str(self.backend.to_str())
        copy.encode_special_tokens = False
        return copy

    def encode(self, text: str, *, special_tokens_in_text: bool = False) -> Encoded:
        """Encode one text with the characters each token covers.

        Args:
            text: Any text. Byte-level BPE: a leading space counts, as in running text.
            special_tokens_in_text: Whether a written special token ("[MASK]") is that token or ordinary text.
        """
        backend = self._with_special_tokens if special_tokens_in_text else self.backend
        encoding = backend.encode(text, add_special_tokens=False)
        return Encoded(
            ids=np.array(encoding.ids, dtype=np.int32),
            word_starts=word_starts_of(encoding.word_ids),
            offsets=np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2),
        )

    def encode_batch(self, texts: Sequence[str]) -> list[tuple[IntArray, BoolArray]]:
        """Encode texts to (ids, word starts) each; special tokens written in them are ordinary text.

        For a whole corpus use `StreamEncoder`, which is many times faster.
        """
        return [
            (np.array(encoding.ids, dtype=np.int32), word_starts_of(encoding.word_ids))
            for encoding in self.backend.encode_batch(list(texts), add_special_tokens=False)
        ]

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = False) -> str:
        """Return the text of some ids (byte-level BPE: exactly; WordPiece: spaces by rule)."""
        text: str = self.backend.decode([int(id) for id in ids], skip_special_tokens=skip_special_tokens)
        return text

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the vocabulary's entries for some ids."""
        return [self._entry(int(id)) for id in ids]

    def token_text(self, id: int) -> str:
        """Return one token readably: "##ing" as it is, "Ġthe" as " the", part of a character as "�"."""
        entry = self._entry(id)
        if self.kind == "wordpiece" or entry in self.special_tokens.names:
            return entry
        text: str = self.backend.decoder.decode([entry])
        return text

    def _entry(self, id: int) -> str:
        entry: str | None = self.backend.id_to_token(id)
        return "" if entry is None else entry


def _restored(serialised: str, names: SpecialNames, folder: Path | None) -> Tokenizer:
    return Tokenizer(tokenizers.Tokenizer.from_str(serialised), names, folder)


def word_starts_of(word_numbers: Sequence[int | None]) -> BoolArray:
    """Return where the word number changes: the tokenizer's own pre-tokenization. Shape (T,)."""
    numbers = np.array(word_numbers, dtype=np.float64)
    starts = np.ones(len(numbers), dtype=np.bool_)
    starts[1:] = numbers[1:] != numbers[:-1]
    return starts


def _kind(backend: tokenizers.Tokenizer, folder: Path | None) -> Literal["wordpiece", "byte_bpe"]:
    model = backend.model
    if isinstance(model, tokenizers.models.WordPiece):
        return "wordpiece"
    if isinstance(model, tokenizers.models.BPE) and any(
        part["type"] == "ByteLevel" for part in _parts(backend.pre_tokenizer)
    ):
        return "byte_bpe"
    where = f"the tokenizer in {str(folder)!r}" if folder else "the tokenizer"
    raise DataError(
        f"{where} is of the kind {type(model).__name__}",
        allowed="WordPiece, byte-level BPE",
        todo="Choose another tokenizer or leave it out to train one.",
    )


def _parts(component: Any) -> list[dict[str, Any]]:
    # Components of the tokenizers library tell their settings only in serialised form; sequences nest.
    if component is None:
        return []
    state = json.loads(component.__getstate__())
    return list(state.get("normalizers") or state.get("pretokenizers") or [state])
