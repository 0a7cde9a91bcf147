"""The tokenizer: ids and word starts of a text, special tokens by role."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import tokenizers
from numpy.typing import NDArray

from maskwright.core.errors import DataError
from maskwright.core.spec import fingerprint
from maskwright.core.types import BoolArray, IntArray, SpecialTokens
from maskwright.data.tokenizers.backends import (
    SPACE,
    SpecialNames,
    drops_marks,
    library_errors,
    parts_of,
    running_text,
)
from maskwright.data.tokenizers.files import ROLES, read_folder, write_folder
from maskwright.data.tokenizers.spec import TokenizerKind
from maskwright.data.tokenizers.word_starts import PieceWords, without_starts_at_marks

MANY_UNKNOWN = 0.05
"""Share of unknown tokens above which training warns. A choice, not measured."""
_LOWERCASING = ("Lowercase", "BertNormalizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedText:
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
    """A WordPiece, byte-level BPE or unigram tokenizer with the facts that training needs.

    Attributes:
        folder: The folder it was read from, if any.
        backend: The tokenizer of the tokenizers library, without truncation and padding. Read-only.
        kind: "wordpiece", "byte_bpe" or "unigram".
        special_tokens: Ids and names of the special tokens, and the vocabulary's size.
        lowercase: Whether text is lower-cased.
        drops_marks: Whether combining marks are dropped.

    Raises DataError if the tokenizer is of another kind.
    """

    def __init__(self, backend: tokenizers.Tokenizer, names: SpecialNames, folder: Path | None = None) -> None:
        self.folder = folder
        self.backend = backend
        # Text of a corpus may contain "[SEP]", which is then five characters and not a special token.
        self.backend.encode_special_tokens = True
        self.kind: TokenizerKind = _kind(backend, folder)
        vocabulary = backend.get_vocab()
        roles = {role: vocabulary[name] for role, name in zip(ROLES, names, strict=True)}
        self.special_tokens = SpecialTokens(**roles, vocab_size=max(vocabulary.values()) + 1, names=names)
        self.lowercase = any(
            part["type"] in _LOWERCASING and part.get("lowercase", True) for part in parts_of(backend.normalizer)
        )
        self.drops_marks = drops_marks(backend)

    @classmethod
    def from_folder(cls, path: Path | str) -> "Tokenizer":
        """Read a tokenizer folder (tokenizer.json, vocab.txt, or vocab.json with merges.txt).

        Raises DataError if there is none, or it is not a WordPiece, byte-level BPE or unigram tokenizer with a mask
        token.
        """
        folder = Path(path).expanduser()
        backend, names = read_folder(folder)
        return cls(backend, names, folder)

    def __reduce__(self) -> tuple[object, ...]:
        # Pickling the backend loses `encode_special_tokens`.
        return _restored, (self.backend.to_str(), self.special_tokens.names, self.folder)

    def save(
        self,
        folder: Path,
        *,
        max_length: int | None = None,
        segments: bool | None = None,
        split_special_tokens: bool = False,
    ) -> None:
        """Write a folder that `from_folder` and transformers' AutoTokenizer read with identical ids.

        Args:
            max_length: Longest sequence of its model, for tools that truncate.
            segments: Whether transformers passes segment ids to its model; None leaves it to the classes.
            split_special_tokens: Whether transformers treats special tokens in a text as text; not for models that
                fill masks.
        """
        settings: dict[str, Any] = {}
        if max_length is not None:
            settings["model_max_length"] = max_length
        if segments is not None:
            settings["model_input_names"] = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]
        if split_special_tokens:
            settings["split_special_tokens"] = True
        write_folder(folder, self.backend, self.special_tokens.names, lowercase=self.lowercase, settings=settings)

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with anything that changes an id."""
        return fingerprint([json.loads(self.backend.to_str()), self.special_tokens.names])

    @cached_property
    def _with_special_tokens(self) -> tokenizers.Tokenizer:
        copy = tokenizers.Tokenizer.from_str(self.backend.to_str())
        copy.encode_special_tokens = False
        return copy

    @cached_property
    def _with_running_text(self) -> tokenizers.Tokenizer:
        return running_text(tokenizers.Tokenizer.from_str(self._with_special_tokens.to_str()))

    @cached_property
    def piece_words(self) -> PieceWords | None:
        """Finds word starts from ids; None if the tokenizer's own splitting determines them."""
        if self.kind != "unigram":
            return None
        special = self.special_tokens
        alone = (special.pad, special.cls, special.sep, special.mask)
        return PieceWords(self.tokens(range(special.vocab_size)), alone, special.unk)

    def encode(self, text: str, *, special_tokens_in_text: bool = False) -> EncodedText:
        """Encode one text with the characters each token covers.

        In byte-level BPE a leading space counts, as in running text. With `special_tokens_in_text`, "[MASK]" in the
        text is that token, else six characters.
        """
        return self._encoded(self._with_special_tokens if special_tokens_in_text else self.backend, text)

    def encode_around_masks(self, text: str) -> EncodedText:
        """Encode a text in which special tokens stand for unknown pieces, e.g. "so [MASK].".

        DEVIATION: after a mask, a unigram tokenizer encodes punctuation as in running text and training: the full stop
        is ".", as in "so good.". transformers' AlbertTokenizer puts a space before it ("▁.").
        """
        if self.kind != "unigram":
            return self.encode(text, special_tokens_in_text=True)
        encoded = self._encoded(self._with_running_text, f" {text}")
        return replace(encoded, offsets=np.maximum(encoded.offsets - 1, 0))

    def _encoded(self, backend: tokenizers.Tokenizer, text: str) -> EncodedText:
        with library_errors():
            encoding = backend.encode(text, add_special_tokens=False)
        ids, word_starts = self._ids_and_starts(encoding, text)
        offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        return EncodedText(ids=ids, word_starts=word_starts, offsets=offsets)

    def _ids_and_starts(self, encoding: tokenizers.Encoding, text: str) -> tuple[IntArray, BoolArray]:
        ids = np.array(encoding.ids, dtype=np.int32)
        if self.piece_words is not None:
            return ids, self.piece_words.starts(ids)
        # Where the word number changes; special tokens (None, so NaN) are words.
        starts = np.diff(np.array(encoding.word_ids, dtype=np.float64), prepend=np.nan) != 0
        if self.kind == "byte_bpe":
            first = np.array([start for start, _ in encoding.offsets], dtype=np.int64)
            starts = without_starts_at_marks(starts, first, text)
        return ids, starts

    def encode_batch(self, texts: Sequence[str]) -> list[IntArray]:
        """Encode texts to ids, shape (L,), int32, each; special tokens written in them are ordinary text.

        For a whole corpus use `StreamEncoder`, which is many times faster.
        """
        with library_errors():
            encodings = self.backend.encode_batch(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = False) -> str:
        """Return the text of some ids (byte-level BPE: exactly; unigram: as cleaned; WordPiece: spaces by rule)."""
        return self.backend.decode([int(id) for id in ids], skip_special_tokens=skip_special_tokens)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the vocabulary's entries for some ids; "" where there is none."""
        return [self.backend.id_to_token(int(id)) or "" for id in ids]

    def token_text(self, id: int) -> str:
        """Return one token readably: "##ing" as it is, "Ġthe" and "▁the" as " the", part of a character as "�"."""
        (entry,) = self.tokens([id])
        if self.kind == "wordpiece" or entry in self.special_tokens.names:
            return entry
        if self.kind == "unigram":
            return entry.replace(SPACE, " ")
        decoder = self.backend.decoder
        return entry if decoder is None else decoder.decode([entry])


def _restored(serialized: str, names: SpecialNames, folder: Path | None) -> Tokenizer:
    return Tokenizer(tokenizers.Tokenizer.from_str(serialized), names, folder)


def _kind(backend: tokenizers.Tokenizer, folder: Path | None) -> TokenizerKind:
    model = backend.model
    splitting = {part["type"] for part in parts_of(backend.pre_tokenizer)}
    if isinstance(model, tokenizers.models.WordPiece):
        return "wordpiece"
    if isinstance(model, tokenizers.models.BPE) and "ByteLevel" in splitting:
        return "byte_bpe"
    if isinstance(model, tokenizers.models.Unigram) and "Metaspace" in splitting:
        return "unigram"
    where = f"the tokenizer in {str(folder)!r}" if folder else "the tokenizer"
    raise DataError(
        f"{where} is of the kind {type(model).__name__}",
        allowed='WordPiece, byte-level BPE, unigram that writes spaces as "▁"',
        hint="Choose another tokenizer or leave it out to train one.",
    )
