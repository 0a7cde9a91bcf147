"""The table of similar words of a corpus and its coverage, cached by fingerprint."""

from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from maskwright.core.amounts import counted
from maskwright.core.checksums import CHECKSUMS, ChecksumBook
from maskwright.core.errors import DataError
from maskwright.core.files import cache_folder, read_json, write_json
from maskwright.core.similar_words import SimilarWords, SimilarWordsSpec
from maskwright.core.spec import fingerprint
from maskwright.core.types import IntArray
from maskwright.data.cache import open_or_build
from maskwright.data.progress import Progress, no_progress
from maskwright.data.shards.corpus import Corpus
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.words.similar_words.counting import (
    DEFAULT_TOKENS,
    CountedWords,
    TokenSample,
    count_words,
    runs,
    sample_tokens,
    spellings,
)
from maskwright.data.words.similar_words.files import Synonyms, holds_vectors, read_synonyms, read_vectors
from maskwright.data.words.similar_words.vectors import (
    LEARNING,
    MAX_WORDS,
    Pairs,
    learn_vectors,
    nearest,
    require_gensim,
)


def check_source(spec: SimilarWordsSpec) -> None:
    """Raise DataError if a package or file is missing, or the file contains neither synonyms nor vectors."""
    if spec.source == "corpus":
        require_gensim()
        return
    path = Path(spec.source).expanduser()
    if not holds_vectors(path):
        read_synonyms(path)


_VERSION = 2
_TABLE, _CARD = "table.npz", "coverage.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The coverage of a table.

    Attributes:
        source: Description of the source.
        similar_words, distinct_words: Distinct words of the text that have a similar one, and all.
        covered, words: The same in occurrences.
        covered_tokens, tokens: The same in tokens.
        share: Share of the corpus's tokens that was counted.
    """

    source: str
    similar_words: int
    distinct_words: int
    covered: int
    words: int
    covered_tokens: int
    tokens: int
    share: float

    def describe(self) -> str:
        """Describe the coverage in a sentence."""
        where = "the corpus" if self.share == 1 else f"a sample of the corpus ({self.share:.1%} of its tokens)"
        return (
            f"{self.covered / max(1, self.words):.1%} of the words in {where} have a similar word "
            f"({self.covered_tokens / max(1, self.tokens):.1%} of its tokens; {self.similar_words:,} of "
            f"{self.distinct_words:,} distinct words)"
        )


FEW_WORDS = 100_000
"""Vectors learned from fewer words than this have mostly arbitrary neighbors (measured on Chinese articles)."""


def few_words_warning(spec: SimilarWordsSpec, coverage: Coverage) -> str:
    """Return a warning if similar words were learned from too little text, else ""."""
    if spec.source != "corpus" or coverage.words >= FEW_WORDS:
        return ""
    return (
        f"similar words learned from only {coverage.words:,} words are mostly arbitrary; give at least {FEW_WORDS:,} "
        "words, or synonyms or word vectors with --set replacement.table.source=FILE"
    )


@dataclass(frozen=True, slots=True)
class KeptTable:
    """A table of similar words and what it covers."""

    table: SimilarWords
    coverage: Coverage


def similar_words(
    spec: SimilarWordsSpec,
    corpus: Corpus,
    tokenizer: Tokenizer,
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
    most_tokens: int = DEFAULT_TOKENS,
) -> KeptTable:
    """Build the table of similar words of a corpus, or open it from the cache.

    The same corpus, settings and source give the same table on the same machine (matmuls may round differently on
    another).

    Args:
        tokenizer: The corpus's.
        cache: Cache directory; None for `core.files.cache_folder()`.
        most_tokens: Words are counted, and vectors learned, in about so many tokens from all over the corpus.

    Raises:
        DataError: If the source cannot be used, or no word of the corpus has a similar one.
        DeviceError: If the cache cannot be written.
    """
    cache = cache or cache_folder()
    settings = [_VERSION, spec.replace(source="-"), LEARNING, MAX_WORDS, most_tokens]
    source = _source_fingerprint(spec, cache)
    key = fingerprint(["similar words", settings, source, corpus.fingerprint, tokenizer.fingerprint])

    def make(folder: Path) -> None:
        made = table_of(spec, sample_tokens(corpus, most_tokens), tokenizer, progress=progress)
        np.savez(folder / _TABLE, **{field.name: getattr(made.table, field.name) for field in fields(SimilarWords)})
        write_json(folder / _CARD, asdict(made.coverage))

    kept = open_or_build(cache / f"similar-words-{key}", _open, make)
    if not len(kept.table):
        raise DataError(f"no word of the corpus has a similar word ({kept.coverage.source})", todo=_mend(spec))
    return kept


def _mend(spec: SimilarWordsSpec) -> str:
    """Return what to check if a source gives nothing."""
    if spec.source == "corpus":
        return (
            f"Give more text, or let rarer words count: --set replacement.table.min_count=N (now {spec.min_count}), "
            f"--set replacement.table.min_similarity=X (now {spec.min_similarity})."
        )
    return (
        "Check that the file is of the corpus's language and script, and that the recipe finds whole words in the "
        "corpus (Chinese words need words.segmenter); a similar word has as many tokens."
    )


def table_of(
    spec: SimilarWordsSpec, sample: TokenSample, tokenizer: Tokenizer, *, progress: Progress | None = None
) -> KeptTable:
    """Build the table of similar words of some running text (see `similar_words`), without the cache."""
    words = count_words(sample, tokenizer.special_tokens)
    report = progress or no_progress
    if spec.source == "corpus":
        numbers, vectors = learn_vectors(words, spec.min_count, report)
        pairs = _pairs_of_vectors([(numbers, vectors)], words, spec, tokenizer)
        frequent = int(words.counts[words.counts >= spec.min_count].sum())
        source = (
            f"the corpus itself: vectors of {len(numbers):,} distinct words, learned from "
            f"{len(words.running) / 1e6:.3g} M words of text, {frequent / max(1, len(words.running)):.1%} of which "
            f"occur at least {counted(spec.min_count, 'time')}"
        )
    else:
        path = Path(spec.source).expanduser()
        if holds_vectors(path):
            vectors_by_spelling, source = read_vectors(path, words, tokenizer, report)
            pairs = _pairs_of_vectors(vectors_by_spelling, words, spec, tokenizer)
        else:
            synonyms, source = read_synonyms(path)
            pairs = _pairs_of_synonyms(synonyms, words, tokenizer, spec.candidates)
    covered = np.unique(pairs.words)
    coverage = Coverage(
        source=source,
        similar_words=len(covered),
        distinct_words=len(words),
        covered=int(words.counts[covered].sum()),
        words=len(words.running),
        covered_tokens=int((words.counts * words.lengths)[covered].sum()),
        tokens=len(sample.ids),
        share=sample.share,
    )
    return KeptTable(_assembled(pairs, words, spec.min_count), coverage)


def _pairs_of_vectors(
    vectors_by_spelling: list[tuple[IntArray, NDArray[np.float32]]],
    words: CountedWords,
    spec: SimilarWordsSpec,
    tokenizer: Tokenizer,
) -> Pairs:
    found = []
    texts = map(tokenizer.token_text, range(tokenizer.special_tokens.vocab_size))
    has_letter = np.array([any(char.isalnum() or char == "\ufffd" for char in text) for text in texts])
    is_punctuation = ~np.logical_or.reduceat(has_letter[words.ids], words.starts)
    for numbers, vectors in vectors_by_spelling:
        trusted = np.flatnonzero(words.ordinary[numbers] & (words.counts[numbers] >= spec.min_count))
        trusted = np.sort(trusted[np.argsort(-words.counts[numbers[trusted]], kind="stable")][:MAX_WORDS])
        if len(trusted):
            chosen = numbers[trusted]
            # Only words of equal length are compared, and words never with punctuation.
            groups = 2 * words.lengths[chosen] + is_punctuation[chosen]
            word, other, cosine = nearest(vectors[trusted], groups, most=spec.candidates, least=spec.min_similarity)
            found.append((chosen[word], chosen[other], cosine))
    return _joined([(word, words.tokens_of(other), cosine) for word, other, cosine in found], words.lengths)


def _pairs_of_synonyms(synonyms: Synonyms, words: CountedWords, tokenizer: Tokenizer, most: int) -> Pairs:
    """Pair words with synonyms of the same number of tokens, the most frequent in the corpus first."""
    places = {word: place for place, word in enumerate(synonyms)}
    found: dict[int, list[IntArray]] = {}
    for encoded in spellings(list(synonyms), tokenizer, capitals=True):
        numbers = words.numbers_of(encoded)
        counts = np.where(numbers >= 0, words.counts[numbers], 0)
        for word, others in synonyms.items():
            number = int(numbers[places[word]])
            if number < 0 or number in found:
                continue
            # Stable: ties in the file's order.
            ranked = sorted((places[other] for other in others), key=lambda place: -counts[place])
            same = encoded[places[word]].tobytes()
            fitting = {
                encoded[place].tobytes(): encoded[place]
                for place in ranked
                if len(encoded[place]) == words.lengths[number]
            }
            fitting.pop(same, None)  # another spelling of the same tokens
            if fitting:
                found[number] = list(fitting.values())[:most]
    number_of = np.array([number for number, others in found.items() for _ in others], dtype=np.int64)
    ids = [ids for others in found.values() for ids in others]
    flat = np.concatenate(ids) if ids else np.empty(0, dtype=np.int32)
    return _joined([(number_of, flat, np.ones(len(number_of), dtype=np.float32))], words.lengths)


def _joined(parts: list[tuple[IntArray, IntArray, NDArray[np.float32]]], lengths: IntArray) -> Pairs:
    """Order (words, tokens of their candidates, similarities) by word; of one word the first part counts."""
    if not parts:
        return Pairs(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32))
    words, ids, similarities = (np.concatenate(each) for each in zip(*parts, strict=True))
    part = np.repeat(np.arange(len(parts)), [len(each[0]) for each in parts])
    order = np.lexsort((np.arange(len(words)), part, words))
    first_part = part[order][np.searchsorted(words[order], words[order])]
    order = order[part[order] == first_part]
    starts = np.cumsum(lengths[words]) - lengths[words]
    return Pairs(words[order], ids[runs(starts[order], lengths[words[order]])], similarities[order])


def _assembled(pairs: Pairs, words: CountedWords, min_count: int) -> SimilarWords:
    covered, first_pair, counts = np.unique(pairs.words, return_index=True, return_counts=True)
    pair_starts = np.cumsum(words.lengths[pairs.words]) - words.lengths[pairs.words]
    pool = _random_pool(words, min_count)
    lengths = words.lengths[pool]
    random_counts = np.bincount(lengths, minlength=1)
    return SimilarWords(
        ids=np.concatenate([pairs.ids, words.tokens_of(pool)]).astype(np.int32),
        hashes=words.hashes[covered],
        lengths=words.lengths[covered].astype(np.int64),
        firsts=pair_starts[first_pair].astype(np.int64),
        counts=counts.astype(np.int64),
        random_firsts=len(pairs.ids)
        + np.cumsum(random_counts * np.arange(len(random_counts)))
        - random_counts * np.arange(len(random_counts)),
        random_counts=random_counts,
        similarities=pairs.similarities.astype(np.float32),
    )


def _random_pool(words: CountedWords, min_count: int) -> IntArray:
    """Return the words to sample random words from, by length: the frequent ones, or all if there are none."""
    ordinary = np.flatnonzero(words.ordinary)
    frequent = words.counts[ordinary] >= min_count
    lengths = words.lengths[ordinary]
    with_frequent = np.unique(lengths[frequent])
    pool = ordinary[frequent | ~np.isin(lengths, with_frequent)]
    return pool[np.argsort(words.lengths[pool], kind="stable")]


def _source_fingerprint(spec: SimilarWordsSpec, cache: Path) -> str:
    if spec.source == "corpus":
        require_gensim()
        return f"gensim {version('gensim')}"
    path = Path(spec.source).expanduser()
    holds_vectors(path)  # raises if the file is missing or empty
    with ChecksumBook(cache / CHECKSUMS) as book:
        return book.checksum(path)


def _open(folder: Path) -> KeptTable:
    try:
        with np.load(folder / _TABLE, allow_pickle=False) as arrays:
            table = SimilarWords(**{field.name: arrays[field.name] for field in fields(SimilarWords)})
        return KeptTable(table, Coverage(**read_json(folder / _CARD)))
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise DataError(f"cannot read the similar words in {folder}: {error}") from error
