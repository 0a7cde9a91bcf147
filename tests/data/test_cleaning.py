"""Cleaning is canonical: what is clean stays as it is, and nothing but characters without text is lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskwright.data.cleaning.text import Cleaning, clean_document, is_wrapped

ODD = st.sampled_from(
    "\n\n\n\r\t \u00a0\u3000\u2028\u2029\u200b\ufeff\x00\x07\x0b\x0c\x1c"
    "\x85\ufffd\xad´ﬁ½aB中か가é.,。e\u0301\u3099\ud800"
)
TEXTS = st.text(st.one_of(ODD, st.characters()), max_size=120)
CLEANINGS = st.builds(
    Cleaning,
    unicode=st.sampled_from(["NFC", "NFKC"]),
    control_characters=st.sampled_from(["drop", "keep"]),
    line_breaks=st.sampled_from(["auto", "paragraph", "sentence", "space"]),
)


@settings(max_examples=200)
@given(TEXTS, CLEANINGS)
def test_cleaning_twice_changes_nothing_and_paragraphs_can_be_stored(text: str, cleaning: Cleaning) -> None:
    once = clean_document(text, cleaning)
    assert clean_document("\n\n".join(once), cleaning) == once
    for paragraph in once:
        assert paragraph == " ".join(paragraph.split())
        assert paragraph.encode().decode() == paragraph
        assert "\x00" not in paragraph


@given(st.lists(st.text(st.sampled_from("abc .éñ中文，。"), min_size=1, max_size=30), max_size=6))
def test_letters_are_never_lost(lines: list[str]) -> None:
    text = "\n".join(lines)
    cleaned = "".join(clean_document(text, Cleaning(line_breaks="paragraph")))
    assert cleaned.replace(" ", "") == text.replace(" ", "").replace("\n", "")


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("A  line\u00a0of\ttext.", ["A line of text."]),
        ("One.\r\nTwo.\rThree.\u2028Four.", ["One.", "Two.", "Three.", "Four."]),
        ("co\xadoper\u200bate\ufeff \ufffdnow\x00\x07", ["cooperate now"]),
        ("e\u0301te\u0301", ["été"]),
        ("\u3000\u3000段落一。\n\u3000\u3000段落二。", ["段落一。", "段落二。"]),
        (" \n \t\n", []),
        ("lone \ud83d surrogate", ["lone surrogate"]),
    ],
)
def test_odd_characters_are_mended(raw: str, clean: list[str]) -> None:
    assert clean_document(raw, Cleaning()) == clean


def test_unicode_forms() -> None:
    assert clean_document("ﬁne，Ａ½", Cleaning()) == ["ﬁne，Ａ½"]
    assert clean_document("ﬁne，Ａ", Cleaning(unicode="NFKC")) == ["fine,A"]


WRAPPED = """It is a truth universally acknowledged, that a single man in
possession of a good fortune, must be in want of a wife. However
little known the feelings or views of such a man may be on his
first entering a neighborhood.

This truth is so well fixed in the minds of the surrounding
families."""
LISTED = "Install the tool.\nRun it once.\nRead the log.\nSend it to us.\nWait for an answer."


def test_wrapped_lines_are_joined() -> None:
    assert is_wrapped(WRAPPED)
    paragraphs = clean_document(WRAPPED, Cleaning())
    assert len(paragraphs) == 2
    assert "single man in possession" in paragraphs[0]
    assert len(clean_document(WRAPPED, Cleaning(line_breaks="paragraph"))) == 6
    assert clean_document(WRAPPED, Cleaning(line_breaks="sentence")) == [line for line in WRAPPED.split("\n") if line]


def test_lines_that_are_sentences_stay_paragraphs() -> None:
    assert not is_wrapped(LISTED)
    assert len(clean_document(LISTED, Cleaning())) == 5
    assert clean_document(LISTED, Cleaning(line_breaks="space")) == [LISTED.replace("\n", " ")]
