"""Encoding of a whole corpus, fast: every distinct word goes through the tokenizer once.

Both kinds of tokenizer treat a text as a row of pieces that do not see each other. BERT's cleaning and
splitting work within a stretch between spaces, and CJK ideographs stand alone (google-research/bert,
tokenization.py). GPT-2's pattern (openai/gpt-2, encoder.py) always ends a piece before a space that follows
other text. So a text is cut at such places, each distinct chunk goes through the tokenizer once, and the rest
is looking up. Where a text or a tokenizer does not fit this reasoning, the text is one chunk: the result is
the tokenizer's own in every case.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from tokenizers import normalizers, pre_tokenizers

from maskwright.core.types import BoolArray, IntArray
from maskwright.text.tokenizer import Tokenizer

# Only the two large blocks: an ideograph of a rarer block merely shares its chunk with its neighbours.
_IDEOGRAPH_OR_STRETCH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]|[^ \u3400-\u4dbf\u4e00-\u9fff]+")
_IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")

_WORD_START = np.uint32(1 << 31)
_CACHED_CHUNKS = 1 << 18
_CACHED_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class TokenStream:
    """Many texts as one stream of tokens.

    Attributes:
        ids: Shape (T,), int32.
        word_starts: Shape (T,), True where a token begins a word.
        lengths: Shape (N,), int64: tokens of each text, 0 for a text that holds nothing.
    """

    ids: IntArray
    word_starts: BoolArray
    lengths: NDArray[np.int64]


class StreamEncoder:
    """Encodes texts as `Tokenizer.encode_batch` does, remembering the chunks it has seen.

    Memory stays bounded (some 50 MB): when the memory of chunks is full it is emptied.

    Args:
        tokenizer: The tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._backend = tokenizer.backend
        self._chunks = _chunker(tokenizer)
        self._known: dict[str, bytes] = {}

    def encode(self, texts: Sequence[str]) -> TokenStream:
        """Encode texts; special tokens written in them are ordinary text."""
        chunks: list[str] = []
        ends = np.empty(len(texts), dtype=np.int64)
        for number, text in enumerate(texts):
            chunks += self._chunks(text)
            ends[number] = len(chunks)
        known = self._known
        unknown = list({chunk: None for chunk in chunks if chunk not in known})
        known.update(zip(unknown, self._encode_chunks(unknown), strict=True))
        pieces = list(map(known.__getitem__, chunks))
        for chunk in unknown:
            if len(chunk) > _CACHED_CHARACTERS:
                del known[chunk]
        if len(known) > _CACHED_CHUNKS:
            known.clear()
        packed = np.frombuffer(b"".join(pieces), dtype=np.uint32)
        sizes = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces)) // packed.itemsize
        token_ends = np.concatenate([[0], np.cumsum(sizes)])[np.concatenate([[0], ends])]
        return TokenStream(
            ids=(packed & ~_WORD_START).astype(np.int32),
            word_starts=packed >= _WORD_START,
            lengths=np.diff(token_ends),
        )

    def _encode_chunks(self, chunks: list[str]) -> Iterable[bytes]:
        encodings = self._backend.encode_batch(chunks, add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        sizes = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
        packed = np.fromiter(chain.from_iterable(ids), dtype=np.uint32, count=int(sizes.sum()))
        words = np.fromiter(
            chain.from_iterable(encoding.word_ids for encoding in encodings),
            dtype=np.int64,
            count=len(packed),
        )
        # Numbering begins anew in each chunk; the chunk's number makes every word's number its own.
        words += np.repeat(np.arange(len(chunks)) << 32, sizes)
        packed[np.diff(words, prepend=-1) != 0] |= _WORD_START
        stream, ends = packed.tobytes(), (np.cumsum(sizes) * packed.itemsize).tolist()
        return [stream[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _chunker(tokenizer: Tokenizer) -> Callable[[str], list[str]]:
    backend = tokenizer.backend
    splitting, cleaning = backend.pre_tokenizer, backend.normalizer
    if any(not token.special for token in backend.get_added_tokens_decoder().values()):
        return _uncut  # Such a token is found before all else and may hold spaces.
    if isinstance(splitting, pre_tokenizers.BertPreTokenizer) and isinstance(cleaning, normalizers.BertNormalizer):
        return _stretches_and_ideographs if cleaning.handle_chinese_chars else _stretches
    plain = isinstance(splitting, pre_tokenizers.ByteLevel) and splitting.use_regex and not splitting.add_prefix_space
    return _spaced_words if plain and cleaning is None else _uncut


def _uncut(text: str) -> list[str]:
    return [text]


def _stretches(text: str) -> list[str]:
    return [stretch for stretch in text.split(" ") if stretch]


def _stretches_and_ideographs(text: str) -> list[str]:
    if _IDEOGRAPH.search(text):
        return _IDEOGRAPH_OR_STRETCH.findall(text)
    return [stretch for stretch in text.split(" ") if stretch]


def _spaced_words(text: str) -> list[str]:
    first, *rest = text.split(" ")
    # White space of other kinds, or two spaces in a row, fall to GPT-2's rule for runs of white space.
    if text.split() != ([first, *rest] if first else rest):
        return [text]
    words = [f" {word}" for word in rest]
    return [first, *words] if first else words
