"""A small tokenizer for `show`, trained in seconds on docstrings and the shown text, and cached."""

from functools import partial
from pathlib import Path

from maskwright.core.errors import DataError
from maskwright.core.files import cache_folder, read_json, write_json
from maskwright.core.spec import fingerprint
from maskwright.data.cache import open_or_build
from maskwright.data.progress import Progress, no_progress
from maskwright.data.sources.docstrings import docstring_documents, docstrings_fingerprint
from maskwright.data.tokenizers.spec import TokenizerSpec, Unigram, WordPiece
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import FREQUENT, train_byte_bpe, train_unigram, train_wordpiece

_VERSION = 1
_VOCAB_SIZE = 8000
_SAMPLE_BYTES = 1_000_000
_SAMPLE_FILE = "documents.json"


def small_tokenizer(
    spec: TokenizerSpec, text: str, *, cache: Path | None = None, progress: Progress | None = None
) -> Tokenizer:
    """Return a tokenizer of this kind, with at most 8,000 entries, that knows every character of the text.

    Raises:
        DeviceError: If the cache cannot be written.
    """
    small = spec.replace(vocab_size=min(spec.vocab_size, _VOCAB_SIZE))
    folder, progress = cache or cache_folder(), progress or no_progress
    sample_key = fingerprint(["docstring sample", _VERSION, docstrings_fingerprint(), _SAMPLE_BYTES])
    make = partial(_make, spec=small, text=text, cache=folder, sample_key=sample_key, progress=progress)
    key = fingerprint(["shown tokenizer", _VERSION, small, sample_key, text])
    return open_or_build(folder / f"shown-tokenizer-{key}", Tokenizer.from_folder, make)


def _make(folder: Path, *, spec: TokenizerSpec, text: str, cache: Path, sample_key: str, progress: Progress) -> None:
    # Reading docstrings takes several times as long as training on them, so they are cached for other texts.
    sample = open_or_build(
        cache / f"docstring-sample-{sample_key}", _open_sample, partial(_make_sample, progress=progress)
    )
    progress("training a small vocabulary", 0, None)
    texts = [text, *sample]
    # Training drops rare characters; repeating those of the text keeps them.
    characters = "".join(sorted(set(text))) * FREQUENT
    if isinstance(spec, WordPiece):
        tokenizer = train_wordpiece(spec, [characters, *texts], texts)
    elif isinstance(spec, Unigram):
        tokenizer = train_unigram(spec, [characters, *texts], texts)
    else:
        tokenizer = train_byte_bpe(spec, texts)
    tokenizer.save(folder)
    progress("training a small vocabulary", 1, 1)


def _make_sample(folder: Path, *, progress: Progress) -> None:
    progress("reading docstrings", 0, None)
    write_json(folder / _SAMPLE_FILE, list(docstring_documents(max_bytes=_SAMPLE_BYTES, workers=1)))
    progress("reading docstrings", 1, 1)


def _open_sample(folder: Path) -> list[str]:
    try:
        documents: list[str] = read_json(folder / _SAMPLE_FILE)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {folder / _SAMPLE_FILE}: {error}") from error
    return documents
