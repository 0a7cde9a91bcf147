"""Small tables of similar words, written by hand."""

from collections.abc import Mapping, Sequence

import numpy as np

from maskwright.core.similar_words import SimilarWords, word_hashes
from maskwright.pretext.replacement import VocabularyFacts

Word = tuple[int, ...]


def table_of(similar: Mapping[Word, Sequence[Word]], random: Sequence[Word] = ()) -> SimilarWords:
    """Make a table from words as tuples of ids: each with its similar words, and the words drawn at random."""
    words = sorted(similar, key=lambda word: int(hash_of(word)))
    longest = max((len(word) for word in random), default=-1)
    by_length = [[word for word in random if len(word) == length] for length in range(longest + 1)]
    flat = [id for word in words for other in similar[word] for id in other]
    sizes = [len(word) * len(similar[word]) for word in words]
    random_sizes = [sum(map(len, group)) for group in by_length]
    return SimilarWords(
        ids=np.array(flat + [id for group in by_length for word in group for id in word], dtype=np.int32),
        hashes=np.array([hash_of(word) for word in words], dtype=np.uint64),
        lengths=np.array([len(word) for word in words], dtype=np.int64),
        firsts=np.cumsum(sizes) - sizes if sizes else np.zeros(0, dtype=np.int64),
        counts=np.array([len(similar[word]) for word in words], dtype=np.int64),
        random_firsts=len(flat) + np.cumsum(random_sizes).astype(np.int64) - np.array(random_sizes, dtype=np.int64),
        random_counts=np.array([len(group) for group in by_length], dtype=np.int64),
    )


def hash_of(word: Word) -> np.uint64:
    """The hash of one word."""
    return word_hashes(np.array(word), np.zeros(1, dtype=np.int64))[0]


def knowing(vocabulary: VocabularyFacts, table: SimilarWords) -> VocabularyFacts:
    """The same facts with a table of similar words."""
    return VocabularyFacts(special_tokens=vocabulary.special_tokens, similar_words=table)
