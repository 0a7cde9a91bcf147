"""Learning a WordPiece vocabulary, the same bytes every time.

Pieces are joined by frequency, most frequent pair first (byte-pair encoding, Sennrich et al. 2016), as every
open WordPiece trainer does; Google's own trainer was never published (google-research/bert, README, "Learning
a new WordPiece vocabulary").

The trainer of the `tokenizers` library numbers the "##" forms of characters in the order of a hash table and
breaks ties between pairs by these numbers, so that two runs differ. Here alphabet and "##" forms are given to
it in order; nothing is left to chance then.
"""

from collections.abc import Iterable, Sequence

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from maskwright.data.alphabet import MAX_SHARE, choose_alphabet
from maskwright.data.tokenizer import Tokenizer
from maskwright.data.tokenizer_backends import (
    CONTINUATION,
    WORDPIECE_NAMES,
    bert_normalizer,
    wordpiece_backend,
)
from maskwright.data.tokenizer_spec import WordPiece

MIN_FREQUENCY = 2
"""Pairs seen less often are not joined: a vocabulary of a tiny corpus stays smaller than asked for."""


def train_wordpiece(spec: WordPiece, texts: Sequence[str], reading: Iterable[str]) -> Tokenizer:
    """Learn a vocabulary: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, characters, their "##" forms, pieces.

    DEVIATION: the special tokens take the first five ids, not Google's 0 and 100 to 103, which leave 99 ids
    unused.

    Args:
        spec: Size and casing.
        texts: The sample.
        reading: The sample once more, as it is to be read (an iterator that tells how far it is).
    """
    normalizer, splitter = bert_normalizer(lowercase=spec.lowercase), pre_tokenizers.BertPreTokenizer()
    room = int(MAX_SHARE * (spec.vocab_size - len(WORDPIECE_NAMES)))
    alphabet = choose_alphabet(texts, room, normalizer, splitter)
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token=WORDPIECE_NAMES[1]))
    backend.normalizer, backend.pre_tokenizer = normalizer, splitter
    trainer = trainers.WordPieceTrainer(
        vocab_size=spec.vocab_size,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        special_tokens=[*WORDPIECE_NAMES, *alphabet.continuing],
        initial_alphabet=list(alphabet.initial),
        limit_alphabet=len(alphabet.initial),
        continuing_subword_prefix=CONTINUATION,
    )
    backend.train_from_iterator(reading, trainer)
    learnt = backend.get_vocab()
    pieces = sorted(learnt.keys() - {*WORDPIECE_NAMES, *alphabet.continuing, *alphabet.initial}, key=learnt.__getitem__)
    entries = [*WORDPIECE_NAMES, *alphabet.initial, *alphabet.continuing, *pieces]
    vocabulary = {token: number for number, token in enumerate(entries)}
    return Tokenizer(wordpiece_backend(vocabulary, normalizer=normalizer), WORDPIECE_NAMES)
