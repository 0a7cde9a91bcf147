"""Similar words shown: from a corpus, from a thesaurus, or not at all."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from maskwright.cli.main import main
from maskwright.core.errors import DataError
from maskwright.inference.showing import Showing, show
from maskwright.text.tokenizer_spec import WordPiece
from maskwright.text.wordpiece_training import train_wordpiece

TEXT = "The red cat sat in the garden. The red dog slept in the house. The red cat saw the old dog."
REPLACED = ("replacement={kind: similar_word, similar: 1, random: 0, keep: 0}", "masking={kind: whole_word, rate: 0.5}")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    pairs = [(animal, colour) for animal in ("cat", "dog", "bird") for colour in ("red", "old", "blue")]
    lines = [
        f"The {colour} {animal} sat in the garden of the {colour} house. It was {colour}." for animal, colour in pairs
    ]
    path.write_text("\n\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    train_wordpiece(WordPiece(vocab_size=200), [TEXT] * 9, [TEXT] * 9).save(folder)
    return folder


def changes(showing: Showing) -> list[tuple[str, str]]:
    return [
        (token.original, token.seen)
        for sequence in showing.sequences
        for token in sequence.tokens
        if token.change == "replaced"
    ]


def test_a_thesaurus_is_used_and_named(tmp_path: Path, tokenizer: Path) -> None:
    thesaurus = tmp_path / "synonyms.txt"
    thesaurus.write_text("cat dog\nred old\n", encoding="utf-8")
    fields = (*REPLACED, f"replacement.table.source={thesaurus}", "replacement.max_stand_ins=0")
    showing = show("bert/tiny", TEXT, set=fields, tokenizer=tokenizer, cache=tmp_path)
    assert set(changes(showing)) == {("cat", "dog"), ("dog", "cat"), ("red", "old"), ("old", "red")}
    assert any("synonyms.txt, plain groups" in note and "words of this text have one" in note for note in showing.notes)


def test_a_corpus_teaches_vocabulary_and_similar_words(tmp_path: Path, corpus: Path) -> None:
    fields = (*REPLACED, "replacement.table={min_count: 1, min_similarity: -1}")
    showing = show("bert/tiny", TEXT, set=fields, corpus=corpus, cache=tmp_path)
    assert str(corpus) in showing.tokenizer
    assert len(changes(showing)) > 3
    assert any("the corpus itself: vectors of" in note for note in showing.notes)
    again = show("bert/tiny", TEXT, set=fields, corpus=[corpus], cache=tmp_path)
    assert again.sequences == showing.sequences


def test_without_a_corpus_there_is_nothing_to_learn_from(tmp_path: Path, tokenizer: Path) -> None:
    showing = show(
        "bert/tiny", TEXT, set=(*REPLACED, "replacement.max_stand_ins=0"), tokenizer=tokenizer, cache=tmp_path
    )
    assert not changes(showing)
    assert any("--corpus" in note for note in showing.notes)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find: Callable[[str], object] = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "gensim" else find(name))
    with pytest.raises(DataError, match=r"maskwright\[words\]"):
        show("bert/tiny", TEXT, set=REPLACED, cache=tmp_path)


def test_the_command_takes_a_corpus(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    fields = [argument for field in REPLACED for argument in ("--set", field)]
    with pytest.raises(SystemExit) as end:
        main(["show", "bert/tiny", "--text", TEXT, "--corpus", str(corpus), *fields])
    captured = capsys.readouterr()
    assert end.value.code == 0
    assert "the corpus itself" in captured.err
    assert "[MASK]{" not in captured.out.split("\n1 ", 1)[1]
