"""A small tokenizer for `show`, trained in seconds on docstrings and the shown text, and cached."""

from pathlib import Path

from maskwright.core.spec import fingerprint
from maskwright.core.storage.files import cache_folder, read_json, write_json
from maskwright.data.cache import open_or_build
from maskwright.data.sources.docstrings import docstring_documents, docstrings_fingerprint
from maskwright.data.tokenizers.spec import TokenizerSpec
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import FREQUENT, train
from maskwright.reporting.reporter import Progress, no_progress

_VERSION = 1
_VOCAB_SIZE = 8000
_SAMPLE_BYTES = 1_000_000
_SAMPLE_FILE = "documents.json"


def small_tokenizer(
    spec: TokenizerSpec, text: str, *, cache: Path | None = None, progress: Progress = no_progress
) -> Tokenizer:
    """Return a tokenizer of this kind, with at most 8,000 entries, that knows every character of the text."""
    small = spec.replace(vocab_size=min(spec.vocab_size, _VOCAB_SIZE))
    folder = cache or cache_folder()
    sample_key = fingerprint(["docstring sample", _VERSION, docstrings_fingerprint(), _SAMPLE_BYTES])

    def write_sample(to: Path) -> None:
        progress("reading docstrings (documents)", 0, None)
        documents = list(docstring_documents(max_bytes=_SAMPLE_BYTES, workers=1))
        write_json(to / _SAMPLE_FILE, documents)
        progress("reading docstrings (documents)", len(documents), len(documents))

    def make(to: Path) -> None:
        # Reading docstrings takes several times as long as training on them, so they are cached for other texts.
        sample_folder = folder / f"docstring-sample-{sample_key}"
        sample = open_or_build(sample_folder, lambda opened: read_json(opened / _SAMPLE_FILE), write_sample)
        texts = [text, *sample]
        progress("training a small vocabulary (texts)", 0, len(texts))
        # Training drops rare characters; repeating those of the text keeps them.
        train(small, ["".join(sorted(set(text))) * FREQUENT, *texts], texts).save(to)
        progress("training a small vocabulary (texts)", len(texts), len(texts))

    key = fingerprint(["shown tokenizer", _VERSION, small, sample_key, text])
    return open_or_build(folder / f"shown-tokenizer-{key}", Tokenizer.from_folder, make)
