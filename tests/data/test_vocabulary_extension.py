"""New entries: old ids stay, old text stays as it was, every kind of tokenizer finds the words whole."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from token_samples import AWKWARD, CHINESE, auto_tokenizer, clean_corpus_of, english_documents, english_sentences

from maskwright.core.errors import DataError
from maskwright.data.tokenizers.extension import extend_vocabulary, frequent_words, tokens_per_word
from maskwright.data.tokenizers.spec import ByteBPE, Unigram, WordPiece
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import train_tokenizer

SPECS = (WordPiece(vocab_size=600), ByteBPE(vocab_size=500), Unigram(vocab_size=400))
DOMAIN = ("hyperbilirubinemia", "tachycardia", "myocarditis", "tachycardiac")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    clean = clean_corpus_of(tmp_path_factory.mktemp("clean"), [english_documents()])
    return {spec.kind: train_tokenizer(spec, clean, seed=0, cache=tmp_path_factory.mktemp("cache")) for spec in SPECS}


@pytest.fixture(params=[spec.kind for spec in SPECS])
def tokenizer(request: pytest.FixtureRequest, trained: dict[str, Tokenizer]) -> Tokenizer:
    return trained[request.param]


def in_running_text(tokenizer: Tokenizer, word: str) -> list[int]:
    return tokenizer.encode(f" {word}").ids.tolist()


def new_merges(old: Tokenizer, new: Tokenizer) -> set[tuple[str, str]]:
    """The pairs of pieces that a byte-level BPE tokenizer has learnt to merge; none for other kinds."""
    before, after = (json.loads(each.backend.to_str())["model"].get("merges", []) for each in (old, new))
    assert after[: len(before)] == before
    return {(first, second) for first, second in after[len(before) :]}


def test_words_become_entries_behind_the_old_ones(tokenizer: Tokenizer) -> None:
    extension = extend_vocabulary(tokenizer, DOMAIN)
    new, size = extension.tokenizer, tokenizer.special_tokens.vocab_size
    assert extension.words == DOMAIN
    assert new.special_tokens.vocab_size == size + len(extension.pieces)
    assert new.special_tokens.names == tokenizer.special_tokens.names
    assert new.tokens(range(size)) == tokenizer.tokens(range(size))
    vocabulary = new.backend.get_vocab()
    assert all(vocabulary[entry] == number for entry, number in tokenizer.backend.get_vocab().items())
    for word in DOMAIN:
        (id,) = in_running_text(new, word)
        assert id >= size
        assert new.token_text(id).strip(" \u2581") == word
        assert list(extension.pieces[id - size]) == in_running_text(tokenizer, word)


def test_entries_on_the_way_are_written_by_their_own_pieces(trained: dict[str, Tokenizer]) -> None:
    old = trained["byte_bpe"]
    extension = extend_vocabulary(old, DOMAIN)
    assert len(extension.pieces) > len(DOMAIN)
    size = old.special_tokens.vocab_size
    for number, pieces in enumerate(extension.pieces):
        assert "".join(old.tokens(pieces)) == extension.tokenizer.tokens([size + number])[0]


def test_text_without_a_new_word_is_cut_as_before(tokenizer: Tokenizer) -> None:
    new = extend_vocabulary(tokenizer, DOMAIN).tokenizer
    merges = new_merges(tokenizer, new)
    for text in (*english_sentences()[:300], *CHINESE, *AWKWARD):
        before, after = tokenizer.encode(text), new.encode(text)
        if not merges.isdisjoint(pairwise(tokenizer.tokens(before.ids))):
            continue  # Where the pieces of a new word meet in another word, they are merged there too.
        assert np.array_equal(before.ids, after.ids), text
        assert np.array_equal(before.word_starts, after.word_starts), text


def test_the_corpus_gives_the_words_that_spare_it_most(tokenizer: Tokenizer) -> None:
    sample = english_sentences() + [" myocarditis"] * 400 + [" 123456789123456789"] * 400
    words = frequent_words(tokenizer, sample)
    assert words[0] == "myocarditis"
    assert not any(word.isdecimal() for word in words)
    extension = extend_vocabulary(tokenizer, words, 40)
    assert 36 <= len(extension.pieces) <= 40 if tokenizer.kind == "byte_bpe" else len(extension.pieces) == 40
    before, after = (tokens_per_word(each, sample, like=tokenizer) for each in (tokenizer, extension.tokenizer))
    assert 1 < after < before
    # What is spared is what was counted: exactly so where entries take no others' place.
    if tokenizer.kind == "wordpiece":
        gone = sum(len(tokenizer.encode(text).ids) - len(extension.tokenizer.encode(text).ids) for text in sample)
        words_in_all = sum(int(tokenizer.encode(text).word_starts.sum()) for text in sample)
        assert before - after == pytest.approx(gone / words_in_all)


def test_an_extended_tokenizer_loads_in_transformers_with_the_same_ids(tokenizer: Tokenizer, tmp_path: Path) -> None:
    new = extend_vocabulary(tokenizer, DOMAIN).tokenizer
    new.save(tmp_path)
    theirs = auto_tokenizer(tmp_path)
    assert len(theirs) == new.special_tokens.vocab_size
    for text in (" Acute tachycardia, hyperbilirubinemia and myocarditis.", *english_sentences()[:100]):
        assert theirs(text, add_special_tokens=False)["input_ids"] == new.encode(text).ids.tolist()


@pytest.mark.parametrize("word", ["two words", "  "])
def test_what_is_no_single_word_is_refused(tokenizer: Tokenizer, word: str) -> None:
    with pytest.raises(DataError, match=r"is \d words to this tokenizer"):
        extend_vocabulary(tokenizer, [word])
