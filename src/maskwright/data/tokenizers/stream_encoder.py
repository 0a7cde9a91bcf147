"""Fast encoding of a corpus: every distinct chunk of text is tokenized once.

Tokenizers split a text into independent pieces. BERT's cleaning and splitting work between spaces, and CJK ideographs
are single words (google-research/bert, tokenization.py). GPT-2's pattern (openai/gpt-2, encoder.py) always ends a piece
before a space that follows other text. ALBERT's unigram pieces never cross white space. So a text is cut there and each
distinct chunk is looked up. If a text or a tokenizer does not allow this, the text is one chunk: the result always
equals the tokenizer's.
"""

import re
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass
from itertools import chain

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import normalizers, pre_tokenizers

from maskwright.core.types import BoolArray, IntArray
from maskwright.data.scripts import COMMON_IDEOGRAPH_CLASS, code_points
from maskwright.data.tokenizers.backends import SPACE, is_albert_splitting, is_gpt2_splitting, library_errors
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.word_starts import without_starts_at_marks

_SPACED_STRETCH = re.compile(" *[^ ]+| +")
# Only the two large blocks, which the tokenizers library knows whole: an ideograph of another shares its chunk.
_IDEOGRAPH_OR_SPACED = re.compile(f"[{COMMON_IDEOGRAPH_CLASS}]| *[^ {COMMON_IDEOGRAPH_CLASS}]+| +")

_WHITE_SPACE = np.array([code for code in range(0x3001) if chr(code).isspace()], dtype=np.uint32)

_WORD_START = np.uint32(1 << 31)
_CACHED_CHUNKS = 1 << 18
_CACHED_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class TokenOffsets:
    """The characters of tokens, as offsets in all texts joined. Both ascend. Shapes (T,), int64.

    Attributes:
        first: A token's first character that is not white space (or its white space).
        end: One past the last character covered so far; a token whose `first` is smaller than the previous `end`
            continues a character (bytes of one ideograph; a single space before its word).
    """

    first: NDArray[np.int64]
    end: NDArray[np.int64]

    @property
    def begins_character(self) -> BoolArray:
        """Whether each token starts a character, not continues one. Shape (T,)."""
        return self.first >= np.concatenate([[0], self.end])[: len(self.end)]


@dataclass(frozen=True, slots=True)
class TokenStream:
    """N texts as one stream of T tokens.

    Attributes:
        word_starts: Shape (T,), True where a token begins a word.
        lengths: Shape (N,), int64: tokens of each text.
        offsets: The tokens' characters, if wanted.
    """

    ids: IntArray
    word_starts: BoolArray
    lengths: NDArray[np.int64]
    offsets: TokenOffsets | None = None


class StreamEncoder:
    """Encodes texts as `Tokenizer.encode` does, with a cache of chunks that is emptied when full (50 MB)."""

    def __init__(self, tokenizer: Tokenizer, *, with_offsets: bool = False) -> None:
        self._backend = tokenizer.backend
        self._piece_words = tokenizer.piece_words
        self._corrects_marks = tokenizer.kind == "byte_bpe"
        self._chunks = _chunker(tokenizer)
        self._with_offsets = with_offsets
        self._columns = 3 if with_offsets else 1
        self._known: dict[str, bytes] = {}

    def encode(self, texts: Sequence[str]) -> TokenStream:
        """Encode texts; special tokens written in them are ordinary text."""
        chunks: list[str] = []
        ends = [0]
        for text in texts:
            chunks += self._chunks(text)
            ends.append(len(chunks))
        known = self._known
        unknown = list({chunk: None for chunk in chunks if chunk not in known})
        known.update(zip(unknown, self._encode_chunks(unknown), strict=True))
        pieces = list(map(known.__getitem__, chunks))
        for chunk in unknown:
            if len(chunk) > _CACHED_CHARACTERS:
                del known[chunk]
        if len(known) > _CACHED_CHUNKS:
            known.clear()
        rows = np.frombuffer(b"".join(pieces), dtype=np.uint32).reshape(-1, self._columns)
        sizes = _lengths(pieces) // (4 * self._columns)
        token_ends = np.concatenate([[0], np.cumsum(sizes)])[ends]
        packed, offsets = rows[:, 0], None
        if self._with_offsets:
            base = np.repeat(_starts_of(chunks), sizes)
            offsets = TokenOffsets(first=base + rows[:, 1], end=base + rows[:, 2])
        return TokenStream(
            ids=(packed & ~_WORD_START).astype(np.int32),
            word_starts=packed >= _WORD_START,
            lengths=np.diff(token_ends),
            offsets=offsets,
        )

    def _encode_chunks(self, chunks: list[str]) -> Iterable[bytes]:
        with library_errors():
            encodings = self._backend.encode_batch(chunks, add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        sizes = _lengths(ids)
        packed = np.fromiter(chain.from_iterable(ids), dtype=np.uint32, count=int(sizes.sum()))
        starts = self._word_starts(encodings, packed, sizes)
        columns = [packed]
        # Only marks of letters call for offsets: text in ASCII has none.
        if self._with_offsets or (self._corrects_marks and not all(map(str.isascii, chunks))):
            offsets = chain.from_iterable(chain.from_iterable(encoding.offsets for encoding in encodings))
            covered = np.fromiter(offsets, dtype=np.int64, count=2 * len(packed)).reshape(-1, 2)
            if self._corrects_marks:
                base = np.repeat(_starts_of(chunks), sizes)
                # A space that the tokenizer puts in front may be said to begin behind its chunk, which is another's.
                last = np.repeat(_lengths(chunks), sizes) - 1
                first = np.minimum(covered[:, 0], np.maximum(last, 0))
                starts = without_starts_at_marks(starts, first + base, "".join(chunks), base)
            if self._with_offsets:
                columns += _within_chunks(covered, sizes, chunks)
        packed[starts] |= _WORD_START
        stream = np.stack(columns, axis=1).tobytes()
        ends = (np.cumsum(sizes) * 4 * self._columns).tolist()
        return [stream[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _word_starts(
        self, encodings: Sequence[tokenizers.Encoding], ids: NDArray[np.uint32], sizes: NDArray[np.int64]
    ) -> BoolArray:
        if self._piece_words is not None:
            return self._piece_words.starts(ids, np.cumsum(sizes) - sizes)
        numbers = chain.from_iterable(encoding.word_ids for encoding in encodings)
        words = np.fromiter(numbers, dtype=np.int64, count=len(ids))
        # Numbering begins anew in each chunk; the chunk's number makes every word's number its own.
        words += np.repeat(np.arange(len(sizes)) << 32, sizes)
        starts: BoolArray = np.diff(words, prepend=-1) != 0
        return starts


def _within_chunks(
    covered: NDArray[np.int64], sizes: NDArray[np.int64], chunks: list[str]
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return `TokenOffsets.first` and `.end` of tokens, each counted from the start of its chunk."""
    base = np.repeat(_starts_of(chunks), sizes)
    last = base + np.repeat(_lengths(chunks), sizes)
    starts, ends = covered[:, 0] + base, covered[:, 1] + base
    codes = code_points("".join(chunks))
    # For each character: the next one, itself included, that is not white space.
    visible = np.where(np.isin(codes, _WHITE_SPACE), len(codes), np.arange(len(codes)))
    visible = np.append(np.minimum.accumulate(visible[::-1])[::-1], len(codes))
    seen = visible[starts]
    # Of white space alone offsets may be empty and stand behind it.
    first = np.maximum.accumulate(np.where(seen < last, seen, np.minimum(starts, last - 1)))
    end = np.maximum.accumulate(np.minimum(np.maximum(ends, first + 1), last))
    return (first - base).astype(np.uint32), (end - base).astype(np.uint32)


def _starts_of(chunks: list[str]) -> NDArray[np.int64]:
    """Return where each chunk begins in all chunks joined. Shape (chunks,)."""
    lengths = _lengths(chunks)
    return np.cumsum(lengths) - lengths


def _lengths(items: Sequence[Sized]) -> NDArray[np.int64]:
    return np.fromiter(map(len, items), dtype=np.int64, count=len(items))


def _chunker(tokenizer: Tokenizer) -> Callable[[str], list[str]]:
    """Return what cuts a text into chunks, which join to the text."""
    backend = tokenizer.backend
    splitting, cleaning = backend.pre_tokenizer, backend.normalizer
    if any(not token.special for token in backend.get_added_tokens_decoder().values()):
        return _uncut  # Such a token is found before all else and may hold spaces.
    if isinstance(splitting, pre_tokenizers.BertPreTokenizer) and isinstance(cleaning, normalizers.BertNormalizer):
        return (_IDEOGRAPH_OR_SPACED if cleaning.handle_chinese_chars else _SPACED_STRETCH).findall
    if tokenizer.kind == "unigram" and is_albert_splitting(backend) and backend.token_to_id(SPACE) is not None:
        return _SPACED_STRETCH.findall
    return _spaced_words if cleaning is None and is_gpt2_splitting(splitting) else _uncut


def _uncut(text: str) -> list[str]:
    return [text]


def _spaced_words(text: str) -> list[str]:
    first, *rest = text.split(" ")
    # White space of other kinds, or two spaces in a row, fall to GPT-2's rule for runs of white space.
    if text.split() != ([first, *rest] if first else rest):
        return [text]
    words = [f" {word}" for word in rest]
    return [first, *words] if first else words
