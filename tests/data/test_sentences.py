"""Sentences join to their paragraph, and stand where a reader would end them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskwright.data.cleaning.sentences import language_of, split_paragraph
from maskwright.data.cleaning.text import Cleaning, clean_document

PARTS = st.sampled_from([
    *("Mr. ", "Smith ", "left. ", "“Why? ", "O!” ", "said ", '"', "'", "(", ") ", "他说", "：“", "走吧。", "”", "！"),
    *("...", " 1. ", "J. ", "x" * 40, "नमस्ते। ", "هل؟ ", "「はい。」", "gitlab", "。", "word ", ", "),
])  # fmt: skip
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
TEXTS = st.one_of(st.lists(PARTS, max_size=60).map("".join), ANY)


@settings(max_examples=200)
@given(TEXTS, st.sampled_from([20, 60, 2000]))
def test_sentences_join_to_the_paragraph(text: str, limit: int) -> None:
    for paragraph in clean_document(text, Cleaning()):
        sentences = split_paragraph(paragraph, max_characters=limit)
        assert "".join(sentences) == paragraph
        assert all(
            sentence.strip(" ") and len(sentence) <= limit and not sentence.endswith(" ") for sentence in sentences
        )


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. J. R. Smith went home...", ' "Did he?" she asked.', ' "Yes! Really."', " It cost $3.50."],
        ["U.S. troops left at 5 p.m. yesterday.", " See e.g. Fig. 3.2 there.", " No. 5 is alive."],
        ["他说：“你好！我走了。”", "然后离开了。", "真的吗？！", "是的；不过……算了。"],
        ["Linux 很好。", "它叫 GNU/Linux。", "gitlab 也在。"],
        ["1. First item.", " 2. Second item."],
        ["“`Mr. Smith came.", " He sat down."],
        ["He left.[1]", " She came.[2]"],
        ["यह एक वाक्य है।", " दूसरा वाक्य।"],
        ["Он ушел.", " Она осталась."],
        ["安装。", "Run it."],
    ],
)
def test_sentences_end_where_readers_end_them(sentences: list[str]) -> None:
    assert split_paragraph("".join(sentences)) == sentences


def test_long_speeches_are_split_inside_their_marks() -> None:
    speech = "“I know what he is about, and so do you. " + "But we had better put a stop to it at once. " * 4
    sentences = split_paragraph(speech + "Good bye!” said the old man, and he left us.")
    assert sentences[0] == "“I know what he is about, and so do you."
    assert sentences[-1] == " Good bye!” said the old man, and he left us."
    assert len(sentences) == 6


def test_endless_sentences_are_cut_at_clauses_or_white_space() -> None:
    words = split_paragraph("word " * 1000 + "end", max_characters=100)
    assert all(len(sentence) <= 100 and sentence.split()[-1] in ("word", "end") for sentence in words)
    clauses = split_paragraph("一二三四五六七八九十，" * 50, max_characters=100)
    assert all(sentence.endswith("，") for sentence in clauses)
    assert [len(sentence) for sentence in split_paragraph("x" * 250, max_characters=100)] == [100, 100, 50]


def test_language_follows_the_script() -> None:
    texts = ["Plain.", "Café “naïve”.", "A word 中 here.", "我用 Python 写。", "これは日本語です。", "漢字とかな"]
    texts += ["안녕하세요", "Привет", "مرحبا", "नमस्ते"]
    assert list(map(language_of, texts)) == ["en", "en", "en", "zh", "ja", "ja", "ko", "ru", "ar", "hi"]
