"""The tokenizer of a corpus, trained on a bounded, seeded sample and cached by fingerprint.

Trainers store every distinct word, so memory follows the text: 100 to 800 MB for 32 MB of English. The worst case is
byte-level BPE of a script without spaces, whose words are whole clauses: about 120 bytes for each byte of text.
"""

from collections.abc import Iterator
from pathlib import Path

from maskwright.core.errors import DataError
from maskwright.core.files import cache_folder
from maskwright.core.spec import fingerprint
from maskwright.data.cache import open_or_build
from maskwright.data.cleaning.store import CleanCorpus
from maskwright.data.progress import Progress, no_progress
from maskwright.data.tokenizers.spec import TokenizerSpec
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import train

DEFAULT_SAMPLE_BYTES = 32 << 20
"""About 5 million English words or 10 million Chinese characters; more changes a vocabulary little."""

_MAX_TEXT_CHARACTERS = 1000
_VERSION = 1
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
        max_sample_bytes: Maximum bytes of text.
        cache: Cache directory; None for `core.files.cache_folder()`.

    Raises:
        DataError: If the corpus contains no text.
        DeviceError: If the cache cannot be written.
    """
    key = fingerprint(["vocabulary", _VERSION, spec, clean.fingerprint, seed, max_sample_bytes])

    def make(folder: Path) -> None:
        texts = sample_texts(clean, max_sample_bytes, seed)
        train(spec, texts, _reported(texts, progress or no_progress)).save(folder)

    return open_or_build((cache or cache_folder()) / f"tokenizer-{key}", Tokenizer.from_folder, make)


def sample_texts(clean: CleanCorpus, max_bytes: int, seed: int) -> list[str]:
    """Sample sentences in corpus order, the same for the same seed.

    None is longer than 1,000 characters, so that an unbroken run cannot stall training.

    Raises:
        DataError: If the corpus contains no text.
    """
    texts = [
        sentence[start : start + _MAX_TEXT_CHARACTERS]
        for sentence in clean.sample(max_bytes, seed)
        for start in range(0, len(sentence), _MAX_TEXT_CHARACTERS)
    ]
    if not texts:
        raise DataError(
            "cannot train a tokenizer: the corpus contains no text",
            todo="Look at the corpus and the cleaning report, then name files that contain text.",
        )
    return texts


def _reported(texts: list[str], progress: Progress) -> Iterator[str]:
    for number, text in enumerate(texts):
        if number % _TEXTS_BETWEEN_REPORTS == 0:
            progress("training the tokenizer", number, len(texts))
        yield text
    progress("training the tokenizer", len(texts), len(texts))
