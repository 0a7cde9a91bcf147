"""Paragraphs to sentences, losslessly: joining the stored sentences gives the paragraphs back.

The boundaries are those of `sentencex`; which language's rules it applies follows the script of each
paragraph. Around it stand three small repairs: a piece without letters (a lone quotation mark, "1.") belongs to its
neighbour, an endless sentence is cut, and white space between sentences is remembered.
"""

import re
from collections.abc import Iterable, Iterator

from sentencex import segment

_SCRIPT_LANGUAGES = (
    ("ja", re.compile("[\u3040-\u30ff]")),
    ("zh", re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")),
    ("ko", re.compile("[\uac00-\ud7af\u1100-\u11ff]")),
    ("hi", re.compile("[\u0900-\u097f]")),
    ("ar", re.compile("[\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc]")),
    ("ru", re.compile("[\u0400-\u04ff]")),
    ("el", re.compile("[\u0370-\u03ff]")),
    ("hy", re.compile("[\u0530-\u058f]")),
    ("bn", re.compile("[\u0980-\u09ff]")),
    ("ta", re.compile("[\u0b80-\u0bff]")),
    ("te", re.compile("[\u0c00-\u0c7f]")),
    ("my", re.compile("[\u1000-\u109f]")),
    ("am", re.compile("[\u1200-\u137f]")),
)
_LATIN_LETTERS = re.compile("[A-Za-z\u00c0-\u024f]")
_LOOKED_AT = 400
_HAS_LETTER = re.compile(r"[^\W\d_]")
_ENUMERATOR = re.compile(r"\d+[.)]?\s*$")
# Where an endless sentence may be cut, best first: after a clause, at white space. CJK clauses end without a space.
_CLAUSE_ENDS = re.compile("[;,:]\\s|[，、；：。！？]")


def language_of(paragraph: str) -> str:
    """Return the ISO 639 code whose sentence rules fit the script most letters of a paragraph have.

    Latin script gives "en": its rules (abbreviations, initials, quotation marks) also hold for most
    European languages; set `Cleaning.language` where they do not.

    Example:
        >>> language_of("我用 Python 写程序。"), language_of("The word 中 is Chinese.")
        ('zh', 'en')
    """
    if paragraph.isascii():
        return "en"
    start = paragraph[:_LOOKED_AT]
    latin = len(_LATIN_LETTERS.findall(start))
    best, most = "en", latin // 3  # a Latin word has several letters, a Chinese one rarely more than two
    for code, letters in _SCRIPT_LANGUAGES:
        found = len(letters.findall(start))
        if code == "ja" and found:
            # Japanese mixes kana with Han characters; kana alone decide.
            found = len(_SCRIPT_LANGUAGES[1][1].findall(start)) + found if found * 8 > len(start) - latin else 0
        if found > most:
            best, most = code, found
    return best


def split_paragraph(paragraph: str, *, language: str = "auto", max_characters: int = 2000) -> list[str]:
    """Split a clean paragraph into sentences that join to it: a leading space where white space stood between.

    Args:
        paragraph: One line of text with single spaces, as `clean_document` gives it.
        language: ISO 639 code, or "auto" for `language_of`.
        max_characters: Longer sentences are cut, after a clause or at white space.

    Returns:
        Sentences with `"".join(sentences) == paragraph`; none is empty or a lone space.

    Example:
        >>> split_paragraph("Mr. Smith left. Why?"), split_paragraph("他说：“走吧。”我们走了。")
        (['Mr. Smith left.', ' Why?'], ['他说：“走吧。”', '我们走了。'])
    """
    if not paragraph:
        return []
    pieces = segment(language_of(paragraph) if language == "auto" else language, paragraph)
    sentences: list[str] = []
    space = ""
    for piece in _join_letterless(pieces):
        text = piece.strip(" ")
        if piece.startswith(" "):
            space = " "
        sentence = space + text
        space = " " if piece.endswith(" ") else ""
        if len(sentence) > max_characters:
            sentences.extend(_cut(sentence, max_characters))
        else:
            sentences.append(sentence)
    return sentences


def _join_letterless(pieces: Iterable[str]) -> Iterator[str]:
    # A number ("2.") begins what follows; any other piece without letters (a quotation mark, "...") ends what went
    # before.
    held = ""
    for piece in pieces:
        begins = _HAS_LETTER.search(piece) is not None or _ENUMERATOR.fullmatch(piece.strip()) is not None
        if begins and _HAS_LETTER.search(held):
            yield held
            held = piece
        else:
            held += piece
    if held:
        yield held


def _cut(sentence: str, limit: int) -> Iterator[str]:
    while len(sentence) > limit:
        end = 0
        for match in _CLAUSE_ENDS.finditer(sentence, limit // 2, limit):
            end = match.end() - (match.group()[-1] == " ")
        if not end:
            end = sentence.rfind(" ", 1, limit)
        if end <= 0:
            end = limit
        yield sentence[:end]
        sentence = sentence[end:]
    if sentence:
        yield sentence
