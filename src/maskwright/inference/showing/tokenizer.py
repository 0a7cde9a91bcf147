"""A small tokenizer for looking at a text when none is at hand: learnt in a moment, kept for next time."""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path

from maskwright.core.files import cache_folder
from maskwright.core.spec import fingerprint
from maskwright.text.byte_bpe_training import train_byte_bpe
from maskwright.text.docstrings import docstring_documents, docstrings_fingerprint
from maskwright.text.kept_folder import kept_or_made
from maskwright.text.progress import Progress, no_progress
from maskwright.text.tokenizer import Tokenizer
from maskwright.text.tokenizer_spec import ByteBPE, WordPiece
from maskwright.text.wordpiece_training import train_wordpiece

_VERSION = 1
_VOCAB_SIZE = 8000
_SAMPLE_CHARACTERS = 2_000_000


def small_tokenizer(
    spec: WordPiece | ByteBPE, text: str, *, cache: Path | None = None, progress: Progress | None = None
) -> Tokenizer:
    """Return a tokenizer of the recipe's kind and at most 8,000 entries that knows every character of a text.

    Args:
        spec: Kind and casing; larger vocabularies are cut to 8,000 entries.
        text: The text it is for; it is learnt from too.
        cache: Where it is kept; None for the user's cache folder.
        progress: Called while it is made.

    Raises:
        DeviceError: If the cache cannot be written.
    """
    small = spec.replace(vocab_size=min(spec.vocab_size, _VOCAB_SIZE))
    key = fingerprint(
        ["shown tokenizer", _VERSION, small, docstrings_fingerprint(), _SAMPLE_CHARACTERS, text]
    )
    folder = (cache or cache_folder()) / f"shown-tokenizer-{key}"
    return kept_or_made(
        folder, Tokenizer.from_folder, partial(_make, spec=small, text=text, progress=progress or no_progress)
    )


def _make(folder: Path, *, spec: WordPiece | ByteBPE, text: str, progress: Progress) -> None:
    progress("learning a small vocabulary", 0, None)
    texts = list(chain([text], _sample()))
    if isinstance(spec, WordPiece):
        tokenizer = train_wordpiece(spec, texts, texts)
    else:
        tokenizer = train_byte_bpe(spec, texts)
    tokenizer.save(folder)
    progress("learning a small vocabulary", 1, 1)


def _sample() -> Iterator[str]:
    left = _SAMPLE_CHARACTERS
    for document in docstring_documents(workers=1):
        left -= len(document)
        if left < 0:
            return
        yield document
