"""Lossless sentence splitting: joining the stored sentences gives the paragraphs back.

The boundaries are those of `sentencex`, with the rules of the language that the paragraph's script suggests. Three
repairs: a piece without letters (a lone quotation mark, "1.") joins its neighbor, an endless sentence is cut, and white
space between sentences is kept.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from sentencex import segment

from maskwright.data.scripts import IDEOGRAPHS, KANA_BLOCKS

# Ranges of letters and the language whose rules fit them.
_SCRIPTS = sorted(
    (
        (0x0370, 0x03FF, "el"),
        (0x0400, 0x052F, "ru"),
        (0x0530, 0x058F, "hy"),
        (0x0600, 0x077F, "ar"),
        (0x0900, 0x097F, "hi"),
        (0x0980, 0x09FF, "bn"),
        (0x0A00, 0x0A7F, "pa"),
        (0x0A80, 0x0AFF, "gu"),
        (0x0B80, 0x0BFF, "ta"),
        (0x0C00, 0x0C7F, "te"),
        (0x0C80, 0x0CFF, "kn"),
        (0x0D00, 0x0D7F, "ml"),
        (0x1000, 0x109F, "my"),
        (0x1100, 0x11FF, "ko"),
        (0x1200, 0x137F, "am"),
        (*KANA_BLOCKS, "ja"),
        *((first, last, "zh") for first, last in IDEOGRAPHS),
        (0xAC00, 0xD7A3, "ko"),
    )
)
_SCRIPT_STARTS = [first for first, _, _ in _SCRIPTS]
_NOT_LATIN = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last, _ in _SCRIPTS) + "]")
_KANA = re.compile("[{}-{}]".format(*map(chr, KANA_BLOCKS)))
_LOOKED_AT = 120
_HAS_LETTER = re.compile(r"[^\W\d_]")
_ENUMERATOR = re.compile(r"\d+[.)]?\s*$")
_QUOTED_TITLE = re.compile(r"[^\w\s](?:Mrs?|Ms|Dr|Mme|Md?lle|St|Prof|Rev|Capt|[A-HJ-Z])\.\s*$")
_OPENING_MARKS = "“‘«‹„「『《"
_QUOTATION_MARKS = _OPENING_MARKS + "”’»›」』》\"'`´"
_QUOTATION_MARK = re.compile(f"[{_QUOTATION_MARKS}]")
_OPENING_MARK = re.compile(f'[{_OPENING_MARKS}（("]')
_FULL_STOP_BEFORE_LATIN = re.compile("(?<=[。！？])(?=[A-Za-z0-9])")
_WITHOUT_SPACES = ("zh", "ja")
# A quoted speech longer than this (a third of it in Chinese and Japanese) is split like other text.
_LONG_QUOTATION = 200
# Where an endless sentence may be cut, best first: after a clause, at white space. CJK clauses end without a space.
_CLAUSE_ENDS = re.compile("[;,:]\\s|[，、；：。！？]")


def language_of(paragraph: str) -> str:
    """Return the ISO 639 code whose sentence rules fit the script of a paragraph, by its first 120 characters.

    Latin script gives "en": its rules (abbreviations, initials, quotation marks) also hold for most
    European languages; set `Cleaning.language` where they do not.
    """
    if paragraph.isascii() or not (letter := _NOT_LATIN.search(paragraph, 0, _LOOKED_AT)):
        return "en"
    language = _SCRIPTS[bisect_right(_SCRIPT_STARTS, ord(letter.group())) - 1][2]
    if language == "zh" and _KANA.search(paragraph, 0, _LOOKED_AT // 2):
        language = "ja"  # Japanese mixes Han characters with kana, Chinese does not
    # Not for a foreign word in a Latin text. Bytes beyond one a character count letters of other scripts (Han ones
    # twice, rightly: a Latin word has more letters), in a tenth of the time.
    start = paragraph[:_LOOKED_AT]
    return language if 2 * (len(start.encode()) - len(start)) >= len(start) else "en"


def split_paragraph(paragraph: str, language: str = "auto", max_characters: int = 2000) -> list[str]:
    """Split a clean paragraph into sentences that join to it: a leading space where white space stood between.

    Args:
        paragraph: One line of text with single spaces, as `clean_document` gives it.
        language: ISO 639 code, or "auto" for `language_of`.
        max_characters: Longer sentences are cut, after a clause or at white space.

    Returns:
        Sentences with `"".join(sentences) == paragraph`; none is empty or a lone space.
    """
    if not paragraph:
        return []
    if language == "auto":
        language = language_of(paragraph)
    pieces = segment(language, paragraph)
    if len(paragraph) > _LONG_QUOTATION or len(pieces) > 1 or language in _WITHOUT_SPACES:
        pieces = _joined(pieces, language)
    sentences: list[str] = []
    space = ""
    for piece in pieces:
        # Pieces keep the space after them (rarely the one before): as stored, it leads the sentence that follows.
        sentence = space + piece
        space = ""
        if sentence[-1] == " ":
            sentence, space = sentence[:-1], " "
        if len(sentence) > max_characters:
            sentences.extend(_cut(sentence, max_characters))
        elif sentence:
            sentences.append(sentence)
    return sentences


def _joined(pieces: list[str], language: str) -> list[str]:
    joined: list[str] = []
    pending = ""
    pending_has_letter = False
    for piece in _opened(pieces, language):
        has_letter = _HAS_LETTER.search(piece) is not None
        # A number ("2.") begins what follows; any other piece without letters (a quotation mark, "...") ends what went
        # before. A title is no end, not even after a quotation mark ("`Mr. Smith").
        begins = has_letter or _ENUMERATOR.fullmatch(piece.strip()) is not None
        if pending_has_letter and begins and not _QUOTED_TITLE.search(pending):
            joined.append(pending)
            pending, pending_has_letter = piece, has_letter
        else:
            pending += piece
            pending_has_letter = pending_has_letter or has_letter
    joined.append(pending)
    return joined


def _opened(pieces: list[str], language: str) -> Iterator[str]:
    # `sentencex` never ends a sentence within quotation marks, be the speech a page long, nor between 。 and a Latin
    # letter.
    spaceless = language in _WITHOUT_SPACES
    for piece in pieces:
        if len(piece) > (_LONG_QUOTATION // 3 if spaceless else _LONG_QUOTATION) and _QUOTATION_MARK.search(piece):
            yield from _split_speech(piece, language)
        elif spaceless and _FULL_STOP_BEFORE_LATIN.search(piece) and not _OPENING_MARK.search(piece):
            yield from _FULL_STOP_BEFORE_LATIN.sub("\n", piece).split("\n")
        else:
            yield piece


def _split_speech(piece: str, language: str) -> Iterator[str]:
    # Split the text as it is without quotation marks, then find those ends in the text as it is with them.
    marks = [mark.start() - number for number, mark in enumerate(_QUOTATION_MARK.finditer(piece))]
    bare = _QUOTATION_MARK.sub("", piece)
    start = length = 0
    for part in segment(language, bare)[:-1]:
        length += len(part)
        end = length + bisect_left(marks, length)
        if not part[-1].isspace():
            # Marks right after the full stop close; after a space they open what follows.
            while piece[end] in _QUOTATION_MARKS and piece[end] not in _OPENING_MARKS:
                end += 1
        # "I will!" said she: the mark closed a speech, not a sentence.
        if not bare[length].islower():
            yield piece[start:end]
            start = end
    yield piece[start:]


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
