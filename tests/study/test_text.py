"""The split of a corpus into training text and held-out text, and the passages that probes take."""

import json
from pathlib import Path

import pytest

from maskwright.core.errors import DataError
from maskwright.data.cleaning.store import clean_corpus
from maskwright.data.cleaning.text import Cleaning
from maskwright.study.text import PASSAGE_BYTES, StudyText, prepare_text

LONG = " ".join(f"Sentence {number} of the long book tells of day {number}." for number in range(400))
NOTICE = "This notice stands at the foot of every page and must be held out of nothing."


def documents() -> list[str]:
    short = [
        f"Letter {n} begins here, and nobody knows why. It goes on for {n} days. It ends on day {n}.\n{NOTICE}"
        for n in range(240)
    ]
    return [*short, LONG]


def split(folder: Path, texts: list[str], **changes: object) -> StudyText:
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text, **changes}) + "\n" for text in texts), encoding="utf-8")
    return prepare_text(folder / "text", [f"{corpus}:0.5"], Cleaning(), cache=folder / "cache", workers=1)


def training_text(text: StudyText) -> str:
    lines = Path(text.train[0].removesuffix(":0.5")).read_text(encoding="utf-8").splitlines()
    return "\n".join(json.loads(line)["text"] for line in lines)


def test_held_out_text_is_in_no_training_text_and_nothing_else_is_lost(tmp_path: Path) -> None:
    text = split(tmp_path, documents())
    trained = training_text(text)
    held = [sentence.strip() for document in text.documents for sentence in document]
    assert 16 <= len(text.documents) <= 60
    assert not any(sentence in trained for sentence in held if sentence.startswith(("Letter", "Sentence")))
    assert NOTICE not in held, "what the training text holds too is removed"
    whole = sum(map(len, documents()))
    assert 0.02 * whole < sum(map(len, held)) < 0.06 * whole
    assert len(trained) > 0.9 * whole
    assert set(text.sources) == {"corpus.jsonl"}


def test_held_out_documents_are_a_corpus_of_the_same_sentences(tmp_path: Path) -> None:
    text = split(tmp_path, documents())
    cleaning = Cleaning(deduplicate="none", min_document_bytes=1)
    cleaned = clean_corpus([text.held_out], cleaning=cleaning, cache=tmp_path / "cache", workers=1)
    sentences = [tuple(document) for block in range(len(cleaned.blocks)) for document in cleaned.sentences(block)]
    assert sentences == list(text.documents)


def test_each_source_gives_its_share(tmp_path: Path) -> None:
    for name, number in (("letters", 200), ("notes", 60)):
        texts = (
            f"One of the {name}, number {n}, is here. It is {n} days old. It ends after day {n}." for n in range(number)
        )
        (tmp_path / f"{name}.txt").write_text("\n\n".join(texts), encoding="utf-8")
    corpus = [str(tmp_path / f"{name}.txt") for name in ("letters", "notes")]
    text = prepare_text(tmp_path / "text", corpus, Cleaning(), cache=tmp_path / "cache", workers=1)
    counts = [text.sources.count(name) for name in ("letters.txt", "notes.txt")]
    assert counts[0] in range(9, 13)
    assert counts[1] in range(2, 5)


def test_the_split_depends_on_the_documents_not_on_their_order(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = split(tmp_path / "a", documents()), split(tmp_path / "b", documents()[::-1])
    assert sorted(first.documents) == sorted(second.documents)
    again = prepare_text(tmp_path / "a" / "text", ["no longer there"], Cleaning())
    assert again == first


def test_a_corpus_too_small_to_hold_anything_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="too small"):
        split(tmp_path, ["One document of one long sentence that cannot be cut anywhere, whatever one may try to do"])


def test_passages_are_whole_sentences_and_pairs_are_neighbors() -> None:
    sentences = tuple(f" The {n}th sentence has a few words in it." for n in range(100))
    text = StudyText(train=(), held_out="", documents=(sentences, sentences[:3]), sources=("a", "b"))
    passages = text.passages(1000)
    assert all(len(passage.encode()) <= PASSAGE_BYTES for _, passage in passages)
    assert "".join(passage for document, passage in passages if document == 0).count("sentence") == 100
    assert len(text.passages(5)) == 5
    joined = "".join(sentences)
    assert all(f"{first} {second}" in joined for _, first, second in text.pairs(1000))
