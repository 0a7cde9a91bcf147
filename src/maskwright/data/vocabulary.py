"""The vocabulary of a corpus: a tokenizer learnt from a bounded, seeded sample, kept by fingerprint."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from maskwright.core.errors import DataError
from maskwright.core.files import cache_folder, read_json, write_json
from maskwright.core.spec import fingerprint
from maskwright.data.byte_bpe_training import train_byte_bpe
from maskwright.data.clean_store import CleanCorpus
from maskwright.data.kept_folder import kept_or_made
from maskwright.data.progress import Progress, no_progress
from maskwright.data.tokenizer import Tokenizer
from maskwright.data.tokenizer_spec import TokenizerSpec, Unigram, WordPiece
from maskwright.data.unigram_training import train_unigram
from maskwright.data.vocabulary_sample import DEFAULT_SAMPLE_BYTES, draw_sample, worst_memory
from maskwright.data.wordpiece_training import train_wordpiece

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
    """Learn a tokenizer from a sample of the corpus; the same corpus, spec and seed give the same bytes.

    A tokenizer learnt before is read back. The vocabulary is smaller than asked for if the corpus is too
    small to fill it: `special_tokens.vocab_size` is what it really has.

    Args:
        spec: Kind, size and casing.
        clean: The corpus.
        seed: Which sample.
        max_sample_bytes: Bytes of text to learn from at most. A sample that repeats itself little (Chinese
            under byte-level BPE) is drawn smaller, so that memory stays bounded: see `sample_memory`.
        cache: Folder for prepared data; None for `core.files.cache_folder()`.
        progress: Called now and then; the stage's name says the memory it takes before it starts.

    Raises:
        DataError: If the corpus holds no text.
        DeviceError: If the cache cannot be written.
    """
    key = fingerprint(["vocabulary", _VERSION, spec, clean.fingerprint, seed, max_sample_bytes])
    folder = (cache or cache_folder()) / f"tokenizer-{key}"
    make = partial(
        _train,
        spec=spec,
        clean=clean,
        seed=seed,
        max_bytes=max_sample_bytes,
        progress=progress or no_progress,
    )
    return kept_or_made(folder, _open, make)


def sample_memory(spec: TokenizerSpec, sample_bytes: int = DEFAULT_SAMPLE_BYTES) -> int:
    """Return how many bytes of memory `train_tokenizer` takes at most for a sample of this size.

    This is for the worst text (see `vocabulary_sample`); English prose takes a quarter of it or less.
    """
    return worst_memory(spec.kind, spec.vocab_size, sample_bytes)


def _train(
    folder: Path,
    *,
    spec: TokenizerSpec,
    clean: CleanCorpus,
    seed: int,
    max_bytes: int,
    progress: Progress,
) -> None:
    sample = draw_sample(clean, spec.kind, spec.vocab_size, max_bytes, seed)
    stage = f"learning the vocabulary (about {sample.memory_bytes >> 20:,} MB of memory)"
    reading = _told(sample.texts, stage, progress)
    if isinstance(spec, WordPiece):
        tokenizer = train_wordpiece(spec, sample.texts, reading)
    elif isinstance(spec, Unigram):
        tokenizer = train_unigram(spec, sample.texts, reading)
    else:
        tokenizer = train_byte_bpe(spec, reading)
    tokenizer.save(folder)
    card = {
        "fingerprint": tokenizer.fingerprint,
        "spec": spec.model_dump(mode="json"),
        "vocab_size": tokenizer.special_tokens.vocab_size,
        "corpus": clean.fingerprint,
        "seed": seed,
        "sample_bytes": sample.num_bytes,
    }
    write_json(folder / _CARD, card)


def _open(folder: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_folder(folder)
    try:
        written = read_json(folder / _CARD)["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"cannot read {folder / _CARD}: {error}") from error
    if written != tokenizer.fingerprint:
        raise DataError(f"the tokenizer in {folder} is not the one that was written there")
    return tokenizer


def _told(texts: list[str], stage: str, progress: Progress) -> Iterator[str]:
    for number, text in enumerate(texts):
        if number % _TEXTS_BETWEEN_REPORTS == 0:
            progress(stage, number, len(texts))
        yield text
    progress(stage, len(texts), len(texts))
