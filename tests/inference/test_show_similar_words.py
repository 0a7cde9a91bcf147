"""Similar words shown: from a corpus, from a thesaurus, or not at all."""

from pathlib import Path

import pytest

from maskwright.data.tokenizers.spec import WordPiece
from maskwright.data.tokenizers.training import train_wordpiece
from maskwright.inference.show import Preview, show

TEXT = "The red cat sat in the garden. The red dog slept in the house. The red cat saw the old dog."
REPLACED = ("replacement={kind: similar_word, similar: 1, random: 0, keep: 0}", "masking={kind: whole_word, rate: 0.5}")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    pairs = [(animal, color) for animal in ("cat", "dog", "bird") for color in ("red", "old", "blue")]
    lines = [f"The {color} {animal} sat in the garden of the {color} house. It was {color}." for animal, color in pairs]
    path.write_text("\n\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    train_wordpiece(WordPiece(vocab_size=200), [TEXT] * 9, [TEXT] * 9).save(folder)
    return folder


def changes(preview: Preview) -> list[tuple[str, str]]:
    return [
        (token.original, token.seen)
        for sequence in preview.sequences
        for token in sequence.tokens
        if token.change == "replaced"
    ]


def test_a_thesaurus_is_used_and_named(tmp_path: Path, tokenizer: Path) -> None:
    thesaurus = tmp_path / "synonyms.txt"
    thesaurus.write_text("cat dog\nred old\n", encoding="utf-8")
    fields = (*REPLACED, f"replacement.table.source={thesaurus}", "replacement.max_fallback_rate=0")
    preview = show("bert/tiny", TEXT, set=fields, tokenizer=tokenizer, cache=tmp_path)
    assert set(changes(preview)) == {("cat", "dog"), ("dog", "cat"), ("red", "old"), ("old", "red")}
    assert any("synonyms.txt: 2 groups" in note and "words of this text have one" in note for note in preview.notes)
    selected = sum(token.change is not None for sequence in preview.sequences for token in sequence.tokens)
    assert f"of the {selected} predicted tokens shown: {selected} similar word" in preview.notes


def test_a_corpus_teaches_vocabulary_and_similar_words(tmp_path: Path, corpus: Path) -> None:
    fields = (*REPLACED, "replacement.table={min_count: 1, min_similarity: -1}")
    preview = show("bert/tiny", TEXT, set=fields, corpus=corpus, cache=tmp_path)
    assert str(corpus) in preview.tokenizer
    assert len(changes(preview)) > 3
    assert any("the corpus itself: vectors of" in note for note in preview.notes)
    again = show("bert/tiny", TEXT, set=fields, corpus=[corpus], cache=tmp_path)
    assert again.sequences == preview.sequences


def test_a_corpus_gives_the_counts_that_random_tokens_are_drawn_by(tmp_path: Path, corpus: Path) -> None:
    # Tokens that stand in the corpus and not in the text come up too.
    fields = ("replacement={mask: 0, random: 1, keep: 0, random_from: corpus}", "masking.rate=0.9")
    preview = show("bert/tiny", "Cat and dog. Bird.", set=fields, corpus=corpus, cache=tmp_path)
    originals = {token.original for sequence in preview.sequences for token in sequence.tokens}
    assert {seen for _, seen in changes(preview)} - originals
    assert not any("counted in this text alone" in note for note in preview.notes)


def test_without_a_corpus_there_is_nothing_to_learn_from(tmp_path: Path, tokenizer: Path) -> None:
    preview = show("bert/tiny", TEXT, set=REPLACED, tokenizer=tokenizer, cache=tmp_path)
    assert any("--corpus" in note for note in preview.notes)
    assert any("(no similar word)" in note for note in preview.notes)
