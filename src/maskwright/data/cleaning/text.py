"""Cleaning of one document: one Unicode form, no control characters, single spaces.

Cleaning the paragraphs again gives the same paragraphs. Only characters that carry no text are removed.
"""

import re
import unicodedata
from typing import Annotated, Literal

from pydantic import Field

from maskwright.core.spec import Spec
from maskwright.data.scripts import HAN_AND_KANA
from maskwright.data.sources.arguments import TextDocuments


class Cleaning(Spec):
    """Settings of corpus cleaning.

    Minimum lengths are in bytes of UTF-8, so that one limit fits all scripts: 60 bytes are a short English sentence or
    twenty hanzi.

    Attributes:
        unicode: Normalization form. "NFC" composes accents; "NFKC" also folds full-width letters, ligatures and
            superscripts (and turns ， into a comma).
        control_characters: "drop" removes control characters, U+FFFD, zero-width spaces, soft hyphens and byte order
            marks; "keep" only removes what cannot be stored (NUL, lone surrogates).
        line_breaks: Meaning of a single line break. "paragraph": a new paragraph; "sentence": a new sentence, the only
            one, so that a line stays whole (text that is already split, verse); "space": a wrapped line; "auto":
            wrapped if most breaks of a document are in mid-sentence before a lower-case letter, else a new paragraph.
            A blank line always ends a paragraph.
        text_documents: Separator of documents in plain text files. "blank_lines": the BERT layout; "files": a file is a
            document; "wiki_titles": lines such as ` = Title = ` begin one (WikiText); "auto": "wiki_titles" if a file
            has such titles, else "blank_lines".
        deduplicate: What is kept only at its first occurrence, compared exactly after cleaning.
        near_duplicates: Whether documents that nearly equal an earlier one are dropped too: with probability
            1 - (1 - s^8)^14 if the share s of their sequences of five words is the same (0.56 for s = 0.7, 0.92 for
            0.8), by MinHash in 14 bands of 8 (Broder 1997; numbers of Penedo et al. 2024, FineWeb).
        exclude: Files of evaluation texts (JSON, JSON Lines, or text with one example a line, also .gz and .zst).
            Paragraphs that share 13 words in a row with one, in any case and punctuation, are dropped; a character of
            Chinese or Japanese is a word. Texts of fewer words are not looked for, since they recur by chance.
        min_duplicate_bytes: Shorter paragraphs are never duplicates: headings ("Parameters") and short replies recur
            naturally.
        min_document_bytes: Shorter documents are dropped, also if duplicates were removed from them.
        max_sentence_characters: Longer sentences (logs, tables) are cut at white space, unless lines are sentences.
        language: Rules of sentence splitting: an ISO 639 code, or "auto" for each paragraph's script.
        bad_lines: For invalid lines (JSON, UTF-8, number of columns): "refuse" stops with file and line; "skip" leaves
            them out and counts them in the data card.
    """

    unicode: Literal["NFC", "NFKC"] = "NFC"
    control_characters: Literal["drop", "keep"] = "drop"
    line_breaks: Literal["auto", "paragraph", "sentence", "space"] = "auto"
    text_documents: TextDocuments = "auto"
    deduplicate: Literal["documents_and_paragraphs", "documents", "none"] = "documents_and_paragraphs"
    near_duplicates: bool = False
    exclude: tuple[str, ...] = ()
    min_duplicate_bytes: Annotated[int, Field(ge=1)] = 30
    min_document_bytes: Annotated[int, Field(ge=1)] = 60
    max_sentence_characters: Annotated[int, Field(ge=20)] = 2000
    language: Annotated[str, Field(pattern=r"^(auto|[a-z]{2,3})$")] = "auto"
    bad_lines: Literal["refuse", "skip"] = "refuse"


# NUL and lone surrogates cannot be stored.
_UNSTORABLE = "\x00\ud800-\udfff"
_UNSTORABLE_CHARACTERS = re.compile(f"[{_UNSTORABLE}]")
# Control characters except tab and the separators that str.split treats as white space; U+FFFD is a decoding error.
_UNWANTED_CHARACTERS = re.compile(
    f"[{_UNSTORABLE}\x01-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b\u2060\ufeff\ufff9-\ufffd\ufffe\uffff]"
)
# Characters of the two sets above, and white space other than spaces and newlines.
_UNTIDY = re.compile(
    f"[{_UNSTORABLE}\x01-\x09\x0b-\x1f\x7f-\xa0\xad\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
    "\ufff9-\ufffd\ufffe\uffff]"
)
_LINE_BREAKS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028]")
_WRAP_WITHOUT_SPACE = re.compile(f"(?<=[{HAN_AND_KANA}，、])[^\\S\n]*\n[^\\S\n]*(?=[{HAN_AND_KANA}])")
_BLANK_LINES = re.compile(r"\n\s*\n")
_MID_SENTENCE_ENDS = re.compile(r"[\w,\-–—)\]]$")
_ENDING = ("paragraph", "sentence")
_LINES_LOOKED_AT = 400
_MIN_BREAKS = 3
_MIN_WRAPPED_SHARE = 0.4


def clean_document(text: str, cleaning: Cleaning) -> list[str]:
    """Return a document's clean paragraphs: no line break, no double space, none empty."""
    tidy = not _UNTIDY.search(text)  # most texts are, which saves most of the work below
    if not tidy:
        text = _without_unwanted(text, cleaning)
    if not text.isascii():
        # After the removals: two characters that a zero-width space kept apart may now compose.
        text = unicodedata.normalize(cleaning.unicode, text)
        tidy = tidy and cleaning.unicode == "NFC"  # NFKC makes new spaces
    # A line that is a sentence is a paragraph of its own.
    if cleaning.line_breaks in _ENDING or (cleaning.line_breaks == "auto" and not is_wrapped(text)):
        if tidy and "  " not in text and " \n" not in text and "\n " not in text:
            return [paragraph for paragraph in text.strip().split("\n") if paragraph]
        pieces = text.split("\n")
    else:
        pieces = [_WRAP_WITHOUT_SPACE.sub("", piece) for piece in _BLANK_LINES.split(text)]
    # str.split knows all of Unicode's white space: no-break, ideographic and thin spaces become plain ones.
    paragraphs = [" ".join(piece.split()) for piece in pieces]
    return [paragraph for paragraph in paragraphs if paragraph]


def _without_unwanted(text: str, cleaning: Cleaning) -> str:
    text = _LINE_BREAKS.sub("\n", text).replace("\u2029", "\n\n")
    unwanted = _UNWANTED_CHARACTERS if cleaning.control_characters == "drop" else _UNSTORABLE_CHARACTERS
    return unwanted.sub("", text)


def is_wrapped(text: str) -> bool:
    """Return whether a document's lines are wrapped at a fixed width, judged by its first 400 lines.

    It has at least 3 single line breaks, and over 40 % of them are between a line without final punctuation and a line
    that begins in lower case.
    """
    breaks = continued = 0
    previous = ""
    for line in map(str.strip, text.split("\n", _LINES_LOOKED_AT)[:_LINES_LOOKED_AT]):
        if line and previous:
            breaks += 1
            continued += line[0].islower() and _MID_SENTENCE_ENDS.search(previous) is not None
        previous = line
    return breaks >= _MIN_BREAKS and continued > _MIN_WRAPPED_SHARE * breaks
