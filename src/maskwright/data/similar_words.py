"""The table of similar words of a corpus: its words are counted and paired by learned vectors or a file of synonyms.

`check_source` reports an unusable source before any work; `similar_words` builds the table or opens the cached one.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.core.errors import DataError
from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.similar_words import SimilarWords, SimilarWordsSpec, word_hashes
from maskwright.core.spec import fingerprint
from maskwright.core.storage.files import cache_folder, checksum, read_json, write_json
from maskwright.core.text.amounts import pluralize
from maskwright.core.types import BoolArray, IntArray, SpecialTokens
from maskwright.data.cache import open_or_build
from maskwright.data.files import decoded_lines, decompressed, reading
from maskwright.data.shards.corpus import Corpus, sample_sentences
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.words.word_vectors import LEARNING, MAX_WORDS, learn_vectors, nearest
from maskwright.reporting.reporter import Progress, no_progress

DEFAULT_TOKENS = 8_000_000
"""Words are counted, and vectors learned, in at most so many tokens of random documents: about 30 MB of English or
20 MB of Chinese. More changes the neighbors of frequent words little."""

FEW_WORDS = 100_000
"""Vectors learned from fewer words than this have mostly arbitrary neighbors (measured on Chinese articles)."""

_VERSION = 5
_TABLE, _CARD = "table.npz", "coverage.json"
_SEPARATORS = re.compile(r"[\s,，、;；|]+")
_GROUPS = "groups of synonyms: a line of words, between spaces, commas or tabs"


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
        where = "the corpus" if self.share == 1 else f"a sample of the corpus ({self.share:.1%} of its tokens)"
        return (
            f"{self.covered / max(1, self.words):.1%} of the words in {where} have a similar word "
            f"({self.covered_tokens / max(1, self.tokens):.1%} of its tokens; {self.similar_words:,} of "
            f"{self.distinct_words:,} distinct words)"
        )


def few_words_warning(spec: SimilarWordsSpec, coverage: Coverage) -> str:
    """Return a warning if similar words were learned from too little text, else ""."""
    if spec.source != "corpus" or coverage.words >= FEW_WORDS:
        return ""
    return (
        f"similar words learned from only {coverage.words:,} words are mostly arbitrary; give at least {FEW_WORDS:,} "
        "words, or synonyms with --set replacement.table.source=FILE"
    )


@dataclass(frozen=True, slots=True)
class KeptTable:
    """A table of similar words and what it covers."""

    table: SimilarWords
    coverage: Coverage


def check_source(spec: SimilarWordsSpec) -> None:
    """Raise DataError if the file is missing or does not contain synonyms."""
    if spec.source != "corpus":
        read_synonyms(Path(spec.source).expanduser())


def similar_words(
    spec: SimilarWordsSpec,
    corpus: Corpus,
    tokenizer: Tokenizer,
    *,
    cache: Path | None = None,
    progress: Progress = no_progress,
) -> KeptTable:
    """Build the table of similar words of a corpus, or open it from the cache.

    The same corpus, settings and source give the same table on the same machine (matmuls may round differently on
    another).

    Args:
        tokenizer: The corpus's.
        cache: As in `clean_corpus`.

    Raises DataError if the source cannot be used, or no word of the corpus has a similar one; DeviceError if the cache
    cannot be written.
    """
    check_source(spec)
    learned = spec.source == "corpus"
    source = f"scikit-learn {version('scikit-learn')}" if learned else checksum(Path(spec.source).expanduser())
    settings = [_VERSION, spec.replace(source="-"), LEARNING, MAX_WORDS, DEFAULT_TOKENS]
    key = fingerprint(["similar words", settings, source, corpus.fingerprint, tokenizer.fingerprint])

    def make(folder: Path) -> None:
        progress("finding similar words (words)", 0, None)
        made = table_of(spec, sample_tokens(corpus), tokenizer)
        np.savez(folder / _TABLE, **{field.name: getattr(made.table, field.name) for field in fields(SimilarWords)})
        write_json(folder / _CARD, asdict(made.coverage))
        progress("finding similar words (words)", len(made.table), len(made.table))

    kept = open_or_build((cache or cache_folder()) / f"similar-words-{key}", _open, make)
    if not len(kept.table):
        hint = (
            f"Give more text, or let rarer words count: --set replacement.table.min_count=N (now {spec.min_count}), "
            f"--set replacement.table.min_similarity=X (now {spec.min_similarity})."
            if learned
            else "Check that the file is of the corpus's language and script, and that the recipe finds whole words in "
            "the corpus (Chinese words need words.segmenter); a similar word has as many tokens."
        )
        raise DataError(f"no word of the corpus has a similar word ({kept.coverage.source})", hint=hint)
    return kept


def _open(folder: Path) -> KeptTable:
    with np.load(folder / _TABLE, allow_pickle=False) as arrays:
        return KeptTable(SimilarWords(**arrays), Coverage(**read_json(folder / _CARD)))


def table_of(spec: SimilarWordsSpec, sample: "TokenSample", tokenizer: Tokenizer) -> KeptTable:
    """Build the table of similar words of some running text (see `similar_words`), without the cache."""
    words = count_words(sample, tokenizer.special_tokens)
    if spec.source == "corpus":
        source, numbers, ids = _learned_pairs(spec, words, tokenizer)
    else:
        synonyms, source = read_synonyms(Path(spec.source).expanduser())
        numbers, ids = _synonym_pairs(synonyms, words, tokenizer, spec.candidates)
    covered, first_pair, counts = np.unique(numbers, return_index=True, return_counts=True)
    pair_starts = np.cumsum(words.lengths[numbers]) - words.lengths[numbers]
    pool = _random_pool(words, spec.min_count)
    random_counts = np.bincount(words.lengths[pool], minlength=1)
    random_tokens = random_counts * np.arange(len(random_counts))
    table = SimilarWords(
        ids=np.concatenate([ids, words.tokens_of(pool)]).astype(np.int32),
        hashes=words.hashes[covered],
        lengths=words.lengths[covered].astype(np.int64),
        firsts=pair_starts[first_pair].astype(np.int64),
        counts=counts.astype(np.int64),
        random_firsts=len(ids) + np.cumsum(random_tokens) - random_tokens,
        random_counts=random_counts,
    )
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
    return KeptTable(table, coverage)


def _learned_pairs(
    spec: SimilarWordsSpec, words: "CountedWords", tokenizer: Tokenizer
) -> tuple[str, IntArray, IntArray]:
    """Return a description, and for each pair the word and the tokens of the other; in order of words."""
    frequent = words.counts >= spec.min_count
    numbers = word = np.empty(0, dtype=np.int64)
    ids = np.empty(0, dtype=np.int32)
    if (frequent & words.ordinary).any():
        numbers, vectors = learn_vectors(words.running, words.sentence_ends, words.ordinary, spec.min_count)
        texts = map(tokenizer.token_text, range(tokenizer.special_tokens.vocab_size))
        has_letter = np.array([any(char.isalnum() or char == "\ufffd" for char in text) for text in texts])
        is_punctuation = ~np.logical_or.reduceat(has_letter[words.ids], words.starts)
        # Only words of equal length are compared, and words never with punctuation.
        groups = 2 * words.lengths[numbers] + is_punctuation[numbers]
        word, other = nearest(vectors, groups, most=spec.candidates, least=spec.min_similarity)
        word, ids = numbers[word], words.tokens_of(numbers[other])
    description = (
        f"the corpus itself: vectors of {len(numbers):,} distinct words, learned from "
        f"{len(words.running) / 1e6:.3g} M words of text, "
        f"{int(words.counts[frequent].sum()) / max(1, len(words.running)):.1%} of which "
        f"occur at least {pluralize(spec.min_count, 'time')}"
    )
    return description, word, ids


def _synonym_pairs(
    synonyms: dict[str, list[str]], words: "CountedWords", tokenizer: Tokenizer, most: int
) -> tuple[IntArray, IntArray]:
    """Return for each pair the word and the tokens of the other, which are as many; in order of words.

    A word's most frequent synonyms in the corpus come first, those that are equally frequent in the file's order.
    """
    number_of = {ids.tobytes(): number for number, ids in enumerate(np.split(words.ids, words.starts[1:]))}
    counts = {tokens: int(words.counts[number]) for tokens, number in number_of.items()}
    tokens_by_word: dict[int, list[bytes]] = {}
    for spelled in _spellings(list(synonyms), tokenizer):
        for word, others in synonyms.items():
            number = number_of.get(spelled[word])
            if number is not None and number not in tokens_by_word:
                fitting = dict.fromkeys(spelled[other] for other in others if len(spelled[other]) == len(spelled[word]))
                fitting.pop(spelled[word], None)  # another spelling of the same tokens
                if fitting:
                    tokens_by_word[number] = sorted(fitting, key=lambda tokens: -counts.get(tokens, 0))[:most]
    ordered = sorted(tokens_by_word)
    numbers = np.repeat(np.array(ordered, dtype=np.int64), [len(tokens_by_word[number]) for number in ordered])
    tokens = b"".join(tokens for number in ordered for tokens in tokens_by_word[number])
    return numbers, np.frombuffer(tokens, dtype=np.int32)


def _spellings(words: list[str], tokenizer: Tokenizer) -> Iterator[dict[str, bytes]]:
    """Yield the tokens of words for each way of writing them; none (b"") of a word with an unknown token.

    Byte-level BPE has other tokens after a space, and a cased tokenizer at the beginning of a sentence.
    """
    never = set(_never(tokenizer.special_tokens))
    forms = [words] if tokenizer.lowercase else [words, [word[:1].upper() + word[1:] for word in words]]
    for form in forms:
        for before in ("", " "):
            encoded = tokenizer.encode_batch([before + word for word in form])
            yield {
                word: ids.tobytes() if never.isdisjoint(ids.tolist()) else b""
                for word, ids in zip(words, encoded, strict=True)
            }


def read_synonyms(path: Path) -> tuple[dict[str, list[str]], str]:
    """Read groups of synonyms (.gz and .zst too): each word of a line is similar to the others, in the file's order.

    Return for each word its synonyms, and a description of the file. Raises DataError if it cannot be read,
    is not UTF-8, is obviously something else, or no line has two words.
    """
    if not path.is_file():
        raise DataError(
            f"there is no file {str(path)!r} with similar words",
            allowed="corpus, or the path of a file of synonyms",
            hint="Check replacement.table.source.",
        )
    groups_by_word: dict[str, dict[str, None]] = {}
    groups = 0
    with reading(path) as file:
        for line in decoded_lines(decompressed(file, path), str(path)):
            words = [word for word in _SEPARATORS.split(line) if word]
            if words and not groups_by_word and (other := _other_content(words)):
                raise DataError(f"{path} looks like {other}", allowed=_GROUPS)
            groups += len(words) > 1
            for word in words:
                groups_by_word.setdefault(word, {}).update(dict.fromkeys(other for other in words if other != word))
    synonyms = {word: list(others) for word, others in groups_by_word.items() if others}
    if not synonyms:
        raise DataError(f"{path} names no two words as synonyms", allowed=_GROUPS)
    word, first = next(iter(synonyms.items()))
    return synonyms, (
        f"{path.name}: {groups:,} groups of synonyms, {len(synonyms):,} words; first {word} ~ {', '.join(first[:3])}"
    )


def _other_content(words: list[str]) -> str:
    """Return what a file contains instead of synonyms, by the words of its first line; "" if it may contain them."""
    if words[0].startswith(("{", "[", "<")):
        return "XML" if words[0][0] == "<" else "JSON"
    numbers = [word for word in words[-2:] if re.fullmatch(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?", word)]
    return "word vectors" if len(words) > 1 and len(numbers) == len(words[-2:]) else ""


@dataclass(frozen=True, slots=True)
class TokenSample:
    """Running text as T tokens.

    Attributes:
        sentence_ends: Shape (S,), int64, ascending, the last is T: where each sentence ends.
        share: Share of the corpus's tokens.
    """

    ids: IntArray
    word_starts: BoolArray
    sentence_ends: IntArray
    share: float = 1.0


def sample_tokens(corpus: Corpus, most: int = DEFAULT_TOKENS) -> TokenSample:
    """Take whole sentences of a corpus: at most `most` tokens, or all."""
    tokens, ends = sample_sentences((corpus.documents,), (1.0,), corpus.gather, most)
    return TokenSample(tokens.ids, tokens.word_starts, ends, len(tokens.ids) / corpus.num_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedWords:
    """The W distinct words of a text of N words.

    Attributes:
        hashes: Shape (W,), uint64, ascending.
        counts: Shape (W,), occurrences.
        lengths: Shape (W,), tokens of each.
        starts: Shape (W,), where each begins in `ids`.
        ids: Shape (sum of lengths,), int32: the words, one after another.
        ordinary: Shape (W,), True for words without special tokens.
        running: Shape (N,), int32: the text as numbers of words.
        sentence_ends: Shape (S,), ascending: where each sentence ends in `running`.
    """

    hashes: NDArray[np.uint64]
    counts: IntArray
    lengths: IntArray
    starts: IntArray
    ids: IntArray
    ordinary: BoolArray
    running: IntArray
    sentence_ends: IntArray

    def __len__(self) -> int:
        return len(self.hashes)

    def tokens_of(self, words: IntArray) -> IntArray:
        """Return the tokens of some words, one word after another."""
        tokens: IntArray = self.ids[concatenated_ranges(self.starts[words], self.lengths[words])]
        return tokens


def count_words(sample: TokenSample, special: SpecialTokens) -> CountedWords:
    """Count the words of a sample; a sentence's end ends a word."""
    begins = sample.word_starts.copy()
    begins[0] = True
    begins[sample.sentence_ends[:-1]] = True
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts, append=len(sample.ids))
    hashes, first, running, counts = np.unique(
        word_hashes(sample.ids, starts), return_index=True, return_inverse=True, return_counts=True
    )
    ids = sample.ids[concatenated_ranges(starts[first], lengths[first])]
    kept_starts = np.cumsum(lengths[first]) - lengths[first]
    return CountedWords(
        hashes=hashes,
        counts=counts,
        lengths=lengths[first],
        starts=kept_starts,
        ids=ids,
        ordinary=np.add.reduceat(np.isin(ids, _never(special)), kept_starts, dtype=np.int64) == 0,
        running=running.astype(np.int32),
        sentence_ends=np.searchsorted(starts, sample.sentence_ends),
    )


def _random_pool(words: CountedWords, min_count: int) -> IntArray:
    """Return the words to sample random words from, by length: the frequent ones, or all if there are none."""
    ordinary = np.flatnonzero(words.ordinary)
    frequent = words.counts[ordinary] >= min_count
    lengths = words.lengths[ordinary]
    pool = ordinary[frequent | ~np.isin(lengths, np.unique(lengths[frequent]))]
    return pool[np.argsort(words.lengths[pool], kind="stable")]


def _never(special: SpecialTokens) -> list[int]:
    """Return the tokens of which no similar or random word consists."""
    return [special.pad, special.unk, special.cls, special.sep, special.mask]
