"""Unigram vocabularies: laid out as ALBERT's, learnt from the text that encoding sees, whatever the text holds."""

import itertools

import pytest
from token_samples import english_documents

from maskwright.data.tokenizers.spec import Unigram
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import train_unigram

ENGLISH = [sentence for document in english_documents() for sentence in document]


def trained(texts: list[str], **fields: object) -> Tokenizer:
    return train_unigram(Unigram.model_validate(fields), texts, texts)


@pytest.fixture(scope="module")
def english() -> Tokenizer:
    return trained(ENGLISH, vocab_size=1200)


def test_vocabulary_is_laid_out_as_alberts(english: Tokenizer) -> None:
    special = english.special_tokens
    assert (special.pad, special.unk, special.cls, special.sep, special.mask) == (0, 1, 2, 3, 4)
    assert english.tokens(range(5)) == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert special.vocab_size == 1200
    assert english.kind == "unigram"
    assert english.lowercase
    assert english.tokens(english.encode("Of the function").ids) == ["▁of", "▁the", "▁function"]


def test_pieces_are_learnt_from_text_as_it_is_cleaned() -> None:
    texts = ["Der CAFÉ-Händler kam ﬁnal.", "``Ein café'' kostet Ⅳ Euro."] * 20
    cased, uncased = trained(texts, vocab_size=150, lowercase=False), trained(texts, vocab_size=150)
    for tokenizer, words in ((cased, ("Handler", '"Ein', "IV")), (uncased, ("handler", '"ein', "iv"))):
        ids = tokenizer.encode(" ".join(texts)).ids
        assert tokenizer.special_tokens.unk not in ids
        assert tokenizer.decode(ids).count(words[0]) == 20
        assert all(word in tokenizer.decode(ids) for word in words)
    assert not cased.lowercase


def test_no_piece_joins_a_digit_to_a_comma_behind_it() -> None:
    texts = [f"in {number * 37},{number * 91 % 1000:03d} of {number}, and" for number in range(2000)]
    tokenizer = trained(texts, vocab_size=300)
    pieces = tokenizer.tokens(range(tokenizer.special_tokens.vocab_size))
    assert any(len(piece) > 2 and piece[-2:].isdigit() for piece in pieces)
    for text in [*texts, "1,234,567, 2,", "5,,6,"]:
        found = tokenizer.tokens(tokenizer.encode(text).ids)
        assert "".join(found).replace("▁", " ").strip() == text
        assert not [piece for piece in found for a, b in itertools.pairwise(piece) if a.isdigit() and b == ","]


def test_characters_are_covered_as_far_as_asked_for() -> None:
    texts = ["the same words " * 10] * 100 + ["Ж", "Щ" * 30]
    for coverage, known in ((0.95, ""), (0.999, "щ"), (1.0, "жщ")):
        tokenizer = trained(texts, vocab_size=120, character_coverage=coverage)
        vocabulary = tokenizer.backend.get_vocab()
        assert {letter for letter in "жщ" if letter in vocabulary} == set(known)


@pytest.mark.parametrize("sign", ["▁", "▅", "\x00", "\t", "\x1f", "\u0301", "⁇", "\U0010ffff"])
def test_signs_that_mean_something_to_the_trainer_are_learnt_around(sign: str) -> None:
    texts = [*ENGLISH[:100], *[f"one{sign}two {sign} three{sign}", sign, ""] * 30]
    tokenizer = trained(texts, vocab_size=400)
    first, second, *_ = tokenizer.tokens(tokenizer.encode("the three").ids)
    assert first == "▁the"
    assert second.startswith("▁thr")
    assert not {"", "\t"} & set(tokenizer.tokens(range(5, 400)))


def test_vocabulary_of_a_tiny_text_is_smaller_than_asked_for_and_fits_a_recipe() -> None:
    for lowercase, smallest in ((True, 74), (False, 100)):
        tokenizer = trained(["a"], vocab_size=5000, lowercase=lowercase)
        vocab_size = tokenizer.special_tokens.vocab_size
        assert smallest <= vocab_size < 200
        assert Unigram(vocab_size=vocab_size, lowercase=lowercase).vocab_size == vocab_size
        smallest_asked = trained(["some words"], vocab_size=smallest, lowercase=lowercase)
        assert smallest_asked.special_tokens.vocab_size == smallest
