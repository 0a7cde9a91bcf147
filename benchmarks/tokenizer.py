"""A WordPiece tokenizer whose every entry is a word, so that a text of n words is n tokens on both sides."""

from maskwright.data.tokenizers.backends import WORDPIECE_NAMES, bert_normalizer, wordpiece_backend
from maskwright.data.tokenizers.tokenizer import Tokenizer


def word(id: int) -> str:
    """Return the word of an id."""
    return f"w{id}"


def word_tokenizer(vocab_size: int) -> Tokenizer:
    """Return the tokenizer.

    Args:
        vocab_size: Entries, the five special ones counted.
    """
    entries = [*WORDPIECE_NAMES, *(word(id) for id in range(len(WORDPIECE_NAMES), vocab_size))]
    vocabulary = {entry: id for id, entry in enumerate(entries)}
    return Tokenizer(wordpiece_backend(vocabulary, normalizer=bert_normalizer(lowercase=True)), WORDPIECE_NAMES)
