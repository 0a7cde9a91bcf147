"""Statistics from bytes agree with counting characters; the page shows them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.errors import DataError
from maskwright.data.cleaning.data_card import card_page, remarks
from maskwright.data.cleaning.statistics import TextStatistics
from maskwright.data.cleaning.store import clean_corpus
from maskwright.data.cleaning.text import Cleaning

LINES = st.text(st.characters(exclude_characters="\n", exclude_categories=("Cs",)), min_size=1, max_size=20)


@given(st.lists(st.lists(LINES, min_size=1, max_size=4), min_size=1, max_size=5))
def test_statistics_count_characters_sentences_and_documents(documents: list[list[str]]) -> None:
    statistics = TextStatistics()
    statistics.count("".join("\n".join(document) + "\n\n" for document in documents).encode())
    sentences = [line for document in documents for line in document]
    assert (statistics.documents, statistics.sentences) == (len(documents), len(sentences))
    assert statistics.characters == sum(map(len, sentences))
    assert statistics.num_bytes == sum(len(line.encode()) for line in sentences)
    assert statistics.longest_sentence == max(map(len, sentences))


def test_scripts_are_distinguished() -> None:
    texts = ["Letters, 123. éàüñ ệ", "汉字，没有。", "かなカナ", "한글", "Кириллица", "عربي", "हिन्दी", "ελληνικά ไทย"]
    scripts = ["Latin", "Han", "Kana", "Hangul", "Cyrillic", "Arabic", "Devanagari", "other"]
    for text, script in zip(texts, scripts, strict=True):
        statistics = TextStatistics()
        statistics.count(f"{text}\n\n".encode())
        assert statistics.scripts() == {script: 1.0}


def test_page_shows_what_was_kept_and_dropped(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "picture.png").write_bytes(b"")
    documents = [
        f"This is document number {number}, which is long enough to be kept by itself." for number in range(30)
    ]
    (folder / "a.txt").write_text("\n\n".join([*documents, documents[0], "short"]), encoding="utf-8")
    corpus = clean_corpus([folder], cleaning=Cleaning(), cache=tmp_path)
    page = (corpus.folder / "data_card.md").read_text(encoding="utf-8")
    assert "**30 documents, 30 sentences" in page
    assert "| repeated documents | −1 |" in page
    assert "| short documents | −1 |" in page
    assert "Scripts: Latin 100.0 %." in page
    assert "> This is document number" in page
    assert "say so with `--clean text_documents=files`" in page
    assert "`min_document_bytes=60`" in page
    assert "Files that are not read: 1 .png." in page
    assert str(tmp_path) not in page
    assert corpus.card["fingerprint"] == corpus.fingerprint
    assert corpus.card["cleaning"]["min_document_bytes"] == 60
    for source in corpus.card["sources"]:
        del source["remarks"]  # As in the cards of text that earlier versions cleaned.
    assert "**30 documents, 30 sentences" in card_page(corpus.card)
    assert remarks(corpus.card) == []


@pytest.mark.parametrize(
    ("name", "header", "line"), [("a.jsonl", "", '{{"comment": "{}", "id": 3}}'), ("a.csv", "comment,number", "{},3")]
)
def test_a_column_that_was_not_named_and_broken_lines_are_reported(
    tmp_path: Path, name: str, header: str, line: str
) -> None:
    texts = [line.format(f"This is comment number {n} and it is long enough to be kept by itself.") for n in range(9)]
    (path := tmp_path / name).write_text("\n".join([header, *texts, '{"a']), encoding="utf-8")
    skip = Cleaning(bad_lines="skip")
    corpus, skipped = clean_corpus([path], cleaning=skip, cache=tmp_path), f"{name}: 1 broken line skipped"
    assert remarks(corpus.card) == [f"{name}: texts from the column 'comment'", skipped]
    assert "- texts from the column 'comment'\n" in (corpus.folder / "data_card.md").read_text(encoding="utf-8")
    assert remarks(clean_corpus([f"{path}#comment"], cleaning=skip, cache=tmp_path).card) == [skipped]
    with pytest.raises(
        DataError, match=rf"no document of {name} is long.*\(texts from the column 'comment'; `#COLUMN`"
    ):
        clean_corpus([path], cleaning=skip.replace(min_document_bytes=500), cache=tmp_path)


def test_a_column_of_some_files_is_not_reported_as_that_of_all(tmp_path: Path) -> None:
    (folder := tmp_path / "mix").mkdir()
    text = "This is text number {} and it is long enough to be kept by itself in the corpus."
    (folder / "a.txt").write_text(text.format(1))
    (folder / "b.csv").write_text(f"text,id\n{text.format(2)},3\n")
    (folder / "c.csv").write_text(f"*body*,id\n{text.format(3)},3\n")
    corpus, remark = clean_corpus([folder], cache=tmp_path), "in some files, texts from the column '*body*'"
    assert remarks(corpus.card) == [f"mix: {remark}"]
    page = (corpus.folder / "data_card.md").read_text(encoding="utf-8")
    assert "- in some files, texts from the column '\\*body\\*'\n" in page
    with pytest.raises(DataError, match=r"no document of mix is long enough: 3 were read.*\(in some files, texts from"):
        clean_corpus([folder], cleaning=Cleaning(min_document_bytes=500), cache=tmp_path)


def test_the_usual_column_needs_no_remark(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,id\nThis is a text that is long enough to be kept by itself in the corpus.,3\n")
    assert remarks(clean_corpus([path], cache=tmp_path).card) == []
