import unicodedata

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from token_samples import AWKWARD, awkward_text
from tokenizers import AddedToken, normalizers, pre_tokenizers

from maskwright.data.tokenizers import stream_encoder
from maskwright.data.tokenizers.stream_encoder import StreamEncoder
from maskwright.data.tokenizers.tokenizer import Tokenizer


def assembled_otherwise(tokenizer: Tokenizer, change: str) -> Tokenizer:
    """Return the tokenizer with one part that the cutting of texts must take into account."""
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    if change == "prefix space":
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    elif change == "no pattern":
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    elif change == "normalizer":
        backend.normalizer = normalizers.NFKC()
    elif change == "token with a space":
        backend.add_tokens([AddedToken("the word", normalized=False)])
    elif change == "words that run on":
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    elif change == "ideographs in words":
        backend.normalizer = normalizers.BertNormalizer(handle_chinese_chars=False)
    return Tokenizer(backend, tokenizer.special_tokens.names)


CHANGED = {
    "uncased": ("ideographs in words", "token with a space"),
    "byte_bpe": ("prefix space", "no pattern", "normalizer", "token with a space"),
    "unigram": ("token with a space", "normalizer", "words that run on"),
}
CHANGES = [(name, change) for name, changes in CHANGED.items() for change in changes]
NAMES = ["uncased", "cased", "byte_bpe", "unigram", "unigram cased", *map(", ".join, CHANGES)]


@pytest.fixture(scope="module")
def encoders(trained: dict[str, Tokenizer]) -> dict[str, Tokenizer]:
    changed = {f"{name}, {change}": assembled_otherwise(trained[name], change) for name, change in CHANGES}
    return trained | changed


def assert_same_as_one_by_one(encoder: StreamEncoder, tokenizer: Tokenizer, texts: list[str]) -> None:
    stream, expected = encoder.encode(texts), [tokenizer.encode(text) for text in texts]
    assert stream.lengths.tolist() == [len(each.ids) for each in expected]
    assert stream.ids.tolist() == [id for each in expected for id in each.ids.tolist()]
    assert stream.word_starts.tolist() == [start for each in expected for start in each.word_starts.tolist()]
    assert stream.ids.dtype == np.int32
    assert stream.word_starts.dtype == np.bool_


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(batches=st.lists(st.lists(awkward_text, max_size=4), max_size=3))
def test_stream_is_the_tokenizers_own_result(name, batches, encoders):
    encoder = StreamEncoder(encoders[name])
    for texts in batches:
        # Twice: once through the tokenizer, once from memory.
        assert_same_as_one_by_one(encoder, encoders[name], texts)
        assert_same_as_one_by_one(encoder, encoders[name], [f"{text} the word" for text in texts])


@pytest.mark.parametrize("name", ["uncased", "byte_bpe", "unigram"])
def test_characters_of_every_sort_between_words_cut_as_the_tokenizer_does(name, encoders):
    # Every control, white-space and combining character, and a spread of all others.
    kinds = {code: unicodedata.category(chr(code)) for code in range(0x30000)}
    codes = [
        code
        for code, kind in kinds.items()
        if kind[0] in "ZM" or kind in ("Cc", "Cf") or (code % 97 == 0 and kind != "Cs")
    ]
    texts = [f"ab{chr(code)}c {chr(code)} d{chr(code)} {chr(code)}e 1" for code in codes]
    assert_same_as_one_by_one(StreamEncoder(encoders[name]), encoders[name], texts)


def test_a_mark_alone_begins_a_word_whatever_stands_in_the_next_text(encoders: dict[str, Tokenizer]) -> None:
    tokenizer = encoders["byte_bpe, prefix space"]
    assert_same_as_one_by_one(StreamEncoder(tokenizer), tokenizer, ["\u0300", "a "])


def test_full_memory_is_emptied_without_a_trace(encoders, monkeypatch):
    monkeypatch.setattr(stream_encoder, "_CACHED_CHUNKS", 5)
    for name in ("uncased", "byte_bpe", "unigram"):
        encoder = StreamEncoder(encoders[name])
        for text in AWKWARD:
            assert_same_as_one_by_one(encoder, encoders[name], [text, f"{text} {text}"])
