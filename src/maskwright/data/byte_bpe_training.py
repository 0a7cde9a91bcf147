"""Learning a byte-level BPE vocabulary, laid out as RoBERTa's (Liu et al. 2019, section 4.4)."""

import json
from collections.abc import Iterable

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from maskwright.data.tokenizer import Tokenizer
from maskwright.data.tokenizer_backends import BYTE_BPE_NAMES, byte_bpe_backend, byte_level
from maskwright.data.tokenizer_spec import ByteBPE

MIN_FREQUENCY = 2
"""Pairs seen less often are not merged: a vocabulary of a tiny corpus stays smaller than asked for."""

MAX_TOKEN_BYTES = 48
"""Longest token: rules of equals signs and repeated boilerplate would otherwise take entries of their own."""


def train_byte_bpe(spec: ByteBPE, texts: Iterable[str]) -> Tokenizer:
    """Learn a vocabulary: <s> 0, <pad> 1, </s> 2, <unk> 3, the 256 bytes, merges, and <mask> last.

    DEVIATION: the merged tokens stand in order of merging, not of corpus frequency as in RoBERTa's dict.txt,
    and there are no `madeupword` fillers.

    Args:
        spec: The size.
        texts: The sample; a sentence within a running text begins with its space.
    """
    pad, unk, cls, sep, mask = BYTE_BPE_NAMES
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = byte_level()
    trainer = trainers.BpeTrainer(
        vocab_size=spec.vocab_size - 1,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        special_tokens=[cls, pad, sep, unk],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=MAX_TOKEN_BYTES,
    )
    backend.train_from_iterator(texts, trainer)
    vocabulary = backend.get_vocab()
    vocabulary[mask] = len(vocabulary)
    merges = [(first, second) for first, second in json.loads(backend.model.__getstate__())["merges"]]
    return Tokenizer(byte_bpe_backend(vocabulary, merges), BYTE_BPE_NAMES)
