"""Words of a domain as new entries of an existing vocabulary: old ids stay, new ones follow.

A general vocabulary splits the words of law or chemistry into many pieces. Whole words become entries as each kind of
tokenizer allows:

- WordPiece takes the longest entry that fits, so the word is added. Words that begin with a new entry are split
  differently, too.
- Unigram takes the most probable pieces, so the word gets slightly more than the probability of its pieces, and
  replaces exactly these.
- Byte-level BPE merges pairs, so the word's pieces are merged from left to right, after all existing merges. Each merge
  is an entry: a word of k pieces costs k - 1. Where two of these pieces meet in other words, they are merged, too.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import numpy as np
import tokenizers

from maskwright.core.errors import DataError
from maskwright.data.tokenizers.backends import NEVER
from maskwright.data.tokenizers.stream_encoder import StreamEncoder, TokenStream
from maskwright.data.tokenizers.tokenizer import Tokenizer

MIN_COUNT = 2
"""Minimum count of a word."""

# In nats: enough to win against the same letters in pieces, too little to win against anything else.
_MARGIN = 1e-3
_TEXTS_AT_ONCE = 8192


@dataclass(frozen=True, slots=True)
class Extension:
    """A vocabulary with new entries at its end.

    Attributes:
        tokenizer: The extended tokenizer.
        words: The added words, without the intermediate merges of byte-level BPE.
        pieces: For each new id, in order, the old ids that it replaces.
    """

    tokenizer: Tokenizer
    words: tuple[str, ...]
    pieces: tuple[tuple[int, ...], ...]


def frequent_words(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """List the words of several tokens, those first whose entry saves most tokens in the texts.

    Words seen once, or without a letter, are left out.
    """
    counts = Counter[bytes]()
    for stream in _streams(tokenizer, texts):
        begins = stream.word_starts.copy()
        begins[(np.cumsum(stream.lengths) - stream.lengths)[stream.lengths > 0]] = True
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], len(stream.ids))
        several = np.flatnonzero(ends - starts > 1)
        counts.update(
            stream.ids[first:last].tobytes()
            for first, last in zip(starts[several].tolist(), ends[several].tolist(), strict=True)
        )
    saved = Counter[str]()
    seen = Counter[str]()
    for packed, count in counts.items():
        ids = np.frombuffer(packed, dtype=np.int32)
        word = tokenizer.decode(ids).strip()
        if tokenizer.special_tokens.unk in ids or "\ufffd" in word or not any(map(str.isalpha, word)):
            continue
        if len(_units(tokenizer, word)) == 1:
            # Each intermediate merge is an entry that saves one token.
            saved[word] += count if tokenizer.kind == "byte_bpe" else (len(ids) - 1) * count
            seen[word] += count
    return sorted((word for word in saved if seen[word] >= MIN_COUNT), key=lambda word: (-saved[word], word))


def extend_vocabulary(tokenizer: Tokenizer, words: Sequence[str], most: int | None = None) -> Extension:
    """Return an extended copy with words as entries, in the order given; existing entries are skipped.

    Raises DataError if something is not a single word, or nothing is left to add.
    """
    builder = _VocabularyBuilder(tokenizer)
    limit = math.inf if most is None else most
    added = []
    for word in words:
        units = _units(tokenizer, word)
        if len(units) != 1:
            raise DataError(
                f"{word!r} is {len(units)} words to this tokenizer" + (f" ({', '.join(units)})" if units else ""),
                allowed="single words",
                hint="Leave it out, or give its parts.",
            )
        if len(builder.pieces) >= limit:
            break
        if builder.add(units[0], limit - len(builder.pieces)):
            added.append(word)
    if not added:
        raise DataError(
            "no word can be added to the vocabulary: all are entries already",
            hint="Give other words, or leave --extend-vocabulary out.",
        )
    backend = tokenizers.Tokenizer.from_str(json.dumps(builder.state))
    backend.no_truncation()
    backend.no_padding()
    return Extension(Tokenizer(backend, tokenizer.special_tokens.names), tuple(added), tuple(builder.pieces))


def tokens_per_word(tokenizer: Tokenizer, texts: Sequence[str], like: Tokenizer) -> float:
    """Return tokens per word of the texts; `like` counts the words, so that two tokenizers are compared."""
    tokens = sum(len(stream.ids) for stream in _streams(tokenizer, texts))
    words = sum(int(stream.word_starts.sum()) for stream in _streams(like, texts))
    return tokens / max(1, words)


def _streams(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[TokenStream]:
    encoder, source = StreamEncoder(tokenizer), iter(texts)
    while some := list(islice(source, _TEXTS_AT_ONCE)):
        yield encoder.encode(some)


def _units(tokenizer: Tokenizer, word: str) -> list[str]:
    """Return a word of running text after cleaning and pre-tokenization."""
    backend, text = tokenizer.backend, word.strip()
    if text and tokenizer.kind == "byte_bpe":
        text = f" {text}"
    cleaned = text if backend.normalizer is None else backend.normalizer.normalize_str(text)
    return [unit for unit, _ in backend.pre_tokenizer.pre_tokenize_str(cleaned)]


class _VocabularyBuilder:
    """A vocabulary to which words are added.

    Attributes:
        state: The tokenizer in serialized form, changed in place.
        pieces: For each new id, the old ids that it replaces.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.state: dict[str, Any] = json.loads(tokenizer.backend.to_str())
        self.pieces: list[tuple[int, ...]] = []
        self._tokenizer = tokenizer
        self._model: dict[str, Any] = self.state["model"]
        self._new: set[str] = set()
        self._ranks = {tuple(pair): rank for rank, pair in enumerate(self._model.get("merges", ()))}
        if tokenizer.kind == "unigram":
            # The unknown piece has no probability.
            lowest = min(score for _, score in self._model["vocab"] if score > NEVER)
            self._scores = [max(score, lowest) for _, score in self._model["vocab"]]
            if len(self._scores) != tokenizer.special_tokens.vocab_size:
                raise DataError(
                    f"the tokenizer in {tokenizer.folder} has entries beside its model; no words can be added to it",
                    hint="Leave --extend-vocabulary out.",
                )

    def add(self, unit: str, limit: float) -> bool:
        """Add a unit if it has several pieces and needs at most `limit` entries; return whether it was added."""
        backend, kind, vocabulary = self._tokenizer.backend, self._tokenizer.kind, self._model["vocab"]
        pieces = tuple(token.id for token in backend.model.tokenize(unit))
        if unit in self._new or not pieces or backend.token_to_id(unit) in pieces:
            return False
        if kind == "byte_bpe":
            return self._add_merges(pieces, limit)
        if kind == "wordpiece" and len(unit) > self._model["max_input_chars_per_word"]:
            return False  # such a word is unknown whatever the vocabulary contains
        id = self._entry(unit, pieces)
        if kind == "wordpiece":
            vocabulary[unit] = id
        else:
            vocabulary.append([unit, sum(self._scores[piece] for piece in pieces) + _MARGIN])
        return True

    def _entry(self, unit: str, pieces: tuple[int, ...]) -> int:
        """Return the id of a new entry."""
        self._new.add(unit)
        self.pieces.append(pieces)
        return self._tokenizer.special_tokens.vocab_size + len(self.pieces) - 1

    def _add_merges(self, pieces: tuple[int, ...], limit: float) -> bool:
        tokens = self._tokenizer.tokens(pieces)
        parts = self._merged([(token, (piece,)) for token, piece in zip(tokens, pieces, strict=True)])
        if len(parts) == 1 or len(parts) - 1 > limit:
            return False
        while len(parts) > 1:
            (first, left_pieces), (second, right_pieces) = parts[:2]
            whole = first + second
            if whole not in self._model["vocab"]:
                self._model["vocab"][whole] = self._entry(whole, left_pieces + right_pieces)
            self._ranks[first, second] = len(self._ranks)
            self._model["merges"].append([first, second])
            parts = self._merged(parts)
        return True

    def _merged(self, parts: list[tuple[str, tuple[int, ...]]]) -> list[tuple[str, tuple[int, ...]]]:
        """Merge as the tokenizer will: the earliest merge first, until none applies."""
        parts = list(parts)
        while len(parts) > 1:
            ranks = [
                (self._ranks.get((left, right), len(self._ranks)), index)
                for index, ((left, _), (right, _)) in enumerate(pairwise(parts))
            ]
            rank, index = min(ranks)
            if rank == len(self._ranks):
                break
            (left, left_pieces), (right, right_pieces) = parts[index : index + 2]
            parts[index : index + 2] = [(left + right, left_pieces + right_pieces)]
        return parts
