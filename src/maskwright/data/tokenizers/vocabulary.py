"""The tokenizer of a corpus, trained on a bounded, seeded sample and cached by fingerprint.

Trainers store every distinct word with its positions, so memory follows the number of distinct symbols (characters for
WordPiece and unigram, bytes for byte-level BPE), not the size of the text. Peak memory beyond the sample, tokenizers
0.23 and sentencepiece 0.2.3 on 64-bit Linux:

    text                                            trainer           memory
    random letters without spaces                   tokenizers        121 bytes per distinct symbol
    Chinese (a clause is one word)                  byte-level BPE    115 bytes per distinct symbol
    English prose                                   tokenizers        under 3 bytes per byte of text
    32 MB novels, 24 MB Chinese, 4 MB random        unigram           784, 502, 259 MB (up to 1 M candidate pieces)
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from maskwright.core.errors import DataError
from maskwright.core.files import cache_folder, read_json, write_json
from maskwright.core.randomness import keys, uniform
from maskwright.core.spec import fingerprint
from maskwright.data.cache import open_or_build
from maskwright.data.cleaning.store import CleanCorpus
from maskwright.data.progress import Progress, no_progress
from maskwright.data.tokenizers.spec import TokenizerKind, TokenizerSpec
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import train

DEFAULT_SAMPLE_BYTES = 32 << 20
"""About 5 million English words or 10 million Chinese characters; more changes a vocabulary little."""

MAX_DISTINCT_SYMBOLS = 1 << 23
"""A sample with more is made smaller; with so many the peak is about 1.2 GB (unigram 1.6)."""

_BYTES_PER_SYMBOL = 125
_BYTES_PER_CANDIDATE = 350
_MAX_CANDIDATES = 1_000_000  # sentencepiece's seed_sentencepiece_size.
# The sample as Python text (1 to 4 bytes per character, 57 to 80 per sentence) and the trainer's copy of it.
_BYTES_PER_SAMPLE_BYTE = 4
_FIXED_BYTES = 64 << 20
_BYTES_PER_ENTRY = 1000

_MAX_TEXT_CHARACTERS = 1000
_PROBE_SHARE = 0.25

_WORDS = {
    # Ideographs are single words in WordPiece, so they never make long words.
    "wordpiece": re.compile("[^\\W\u3400-\u4dbf\u4e00-\u9fff]+"),
    "byte_bpe": re.compile(r"[^\W\d_]+|\d+|[^\w\s]+"),
    "unigram": re.compile(r"\S+"),
}

_VERSION = 1
_CARD = "training.json"
_TEXTS_BETWEEN_REPORTS = 4096


def train_tokenizer(
    spec: TokenizerSpec,
    clean: CleanCorpus,
    *,
    seed: int,
    max_sample_bytes: int = DEFAULT_SAMPLE_BYTES,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Tokenizer:
    """Train a tokenizer on a sample of the corpus, or open it from the cache.

    The same corpus, spec and seed give the same bytes. The vocabulary is smaller than asked for if the corpus is too
    small to fill it; `special_tokens.vocab_size` is its actual size.

    Args:
        max_sample_bytes: Maximum bytes of text. A sample that repeats itself little (Chinese under byte-level BPE) is
            smaller, so that memory stays bounded: see `sample_memory`.
        cache: Cache directory; None for `core.files.cache_folder()`.
        progress: The name of the stage states the memory it needs.

    Raises:
        DataError: If the corpus contains no text.
        DeviceError: If the cache cannot be written.
    """
    key = fingerprint(["vocabulary", _VERSION, spec, clean.fingerprint, seed, max_sample_bytes])
    report = progress or no_progress

    def make(folder: Path) -> None:
        texts, num_bytes, memory_bytes = sample_texts(clean, spec.kind, spec.vocab_size, max_sample_bytes, seed)
        reading = _reported(texts, f"training the tokenizer (about {memory_bytes >> 20:,} MB of memory)", report)
        tokenizer = train(spec, texts, reading)
        tokenizer.save(folder)
        card = {
            "fingerprint": tokenizer.fingerprint,
            "spec": spec.model_dump(mode="json"),
            "vocab_size": tokenizer.special_tokens.vocab_size,
            "corpus": clean.fingerprint,
            "seed": seed,
            "sample_bytes": num_bytes,
        }
        write_json(folder / _CARD, card)

    return open_or_build((cache or cache_folder()) / f"tokenizer-{key}", _open, make)


def sample_memory(spec: TokenizerSpec, sample_bytes: int = DEFAULT_SAMPLE_BYTES) -> int:
    """Return the maximum bytes of memory of `train_tokenizer` for a sample of this size, whatever its text.

    English prose needs a quarter of it or less.
    """
    return _memory(spec.kind, spec.vocab_size, sample_bytes, min(sample_bytes, MAX_DISTINCT_SYMBOLS))


def sample_texts(
    clean: CleanCorpus, kind: TokenizerKind, vocab_size: int, max_bytes: int, seed: int
) -> tuple[list[str], int, int]:
    """Sample texts whose training fits the memory bound, the same for the same seed.

    Returns:
        Sentences in corpus order, none longer than 1,000 characters, so that an unbroken run cannot stall training;
        their bytes of UTF-8; the maximum bytes of memory that training on them needs.

    Raises:
        DataError: If the corpus contains no text.
    """
    texts = list(clean.sample(max_bytes, seed))
    symbols = _distinct_symbols(texts, kind)
    if symbols > MAX_DISTINCT_SYMBOLS:
        # Sampled again, not cut off, so that the whole corpus stays represented.
        texts = list(clean.sample(int(_num_bytes(texts) * MAX_DISTINCT_SYMBOLS / symbols), seed))
        symbols = _distinct_symbols(texts, kind)
    num_bytes = _num_bytes(texts)
    if not num_bytes:
        raise DataError(
            "cannot train a tokenizer: the corpus contains no text",
            todo="Look at the corpus and the cleaning report, then name files that contain text.",
        )
    pieces = [
        text[start : start + _MAX_TEXT_CHARACTERS]
        for text in texts
        for start in range(0, len(text), _MAX_TEXT_CHARACTERS)
    ]
    return pieces, num_bytes, _memory(kind, vocab_size, num_bytes, symbols)


def _memory(kind: TokenizerKind, vocab_size: int, sample_bytes: int, distinct_symbols: int) -> int:
    text = _BYTES_PER_SAMPLE_BYTE * sample_bytes
    # Candidates are inner nodes of a suffix tree, of which there are fewer than half as many as symbols.
    candidates = _BYTES_PER_CANDIDATE * min(distinct_symbols // 2, _MAX_CANDIDATES) if kind == "unigram" else 0
    symbols = _BYTES_PER_SYMBOL * distinct_symbols
    return _FIXED_BYTES + _BYTES_PER_ENTRY * vocab_size + text + symbols + candidates


def _distinct_symbols(texts: list[str], kind: TokenizerKind) -> int:
    """Return an upper bound of the distinct symbols of the texts' words, estimated from a quarter of the texts."""
    # Text repeats itself more the longer it is, so the estimate from a part is an upper bound for the whole.
    num_bytes = _num_bytes(texts)
    if num_bytes <= _PROBE_SHARE * MAX_DISTINCT_SYMBOLS:
        return num_bytes
    # At random, not every fourth: lists of questions and answers have a rhythm.
    chosen = uniform(keys(0, "vocabulary probe", 0, np.arange(len(texts))), 0) < _PROBE_SHARE
    probe = [texts[place] for place in np.flatnonzero(chosen)]
    distinct = {word for text in probe for word in _WORDS[kind].findall(text)}
    size = sum(len(word.encode()) if kind == "byte_bpe" else len(word) for word in distinct)
    return min(num_bytes, int(size * num_bytes / max(_num_bytes(probe), 1)))


def _num_bytes(texts: list[str]) -> int:
    return sum(len(text.encode()) for text in texts)


def _open(folder: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_folder(folder)
    try:
        written = read_json(folder / _CARD)["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"cannot read {folder / _CARD}: {error}") from error
    if written != tokenizer.fingerprint:
        raise DataError(f"the tokenizer in {folder} is not the one that was written there")
    return tokenizer


def _reported(texts: list[str], stage: str, progress: Progress) -> Iterator[str]:
    for number, text in enumerate(texts):
        if number % _TEXTS_BETWEEN_REPORTS == 0:
            progress(stage, number, len(texts))
        yield text
    progress(stage, len(texts), len(texts))
