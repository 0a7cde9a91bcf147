"""Sizes and script shares of clean text, computed from its UTF-8 bytes."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

SCRIPTS = ("Latin", "Han", "Kana", "Hangul", "Cyrillic", "Arabic", "Devanagari", "other")
# Scripts by the first two bytes of a character's UTF-8 form: (first pair, last pair, script). Punctuation blocks
# (C2, E2, E3 80, EF BC) are left out: only letters count.
_BYTE_PAIRS = (
    (0xC380, 0xCABF, "Latin"),
    (0xE1B8, 0xE1BB, "Latin"),
    (0xCDB0, 0xCFBF, "other"),
    (0xD080, 0xD4AF, "Cyrillic"),
    (0xD4B0, 0xD7BF, "other"),
    (0xD880, 0xDBBF, "Arabic"),
    (0xDC80, 0xDFBF, "other"),
    (0xE0A0, 0xE0A3, "other"),
    (0xE0A4, 0xE0A5, "Devanagari"),
    (0xE0A6, 0xE183, "other"),
    (0xE184, 0xE187, "Hangul"),
    (0xE188, 0xE1B3, "other"),
    (0xE381, 0xE383, "Kana"),
    (0xE390, 0xE9BF, "Han"),
    (0xEAB0, 0xED9F, "Hangul"),
    (0xEFA4, 0xEFAB, "Han"),
    (0xF0A0, 0xF0BF, "Han"),
)


def _pair_table() -> NDArray[np.uint8]:
    table = np.full(1 << 16, len(SCRIPTS), dtype=np.uint8)  # the last number: not a letter
    for first, last, script in _BYTE_PAIRS:
        table[first : last + 1] = SCRIPTS.index(script)
    return table


_SCRIPT_OF_PAIR = _pair_table()


@dataclass(slots=True)
class TextStatistics:
    """Sums over clean text in the stored form; feed it whole documents.

    Attributes:
        documents, sentences, characters, num_bytes: Totals; line ends are not text and not counted.
        longest_sentence: In characters.
        letters: Shape (8,), letters of each of `SCRIPTS`.
    """

    documents: int = 0
    sentences: int = 0
    characters: int = 0
    num_bytes: int = 0
    longest_sentence: int = 0
    letters: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(SCRIPTS), dtype=np.int64))

    def add(self, data: bytes) -> None:
        """Count stored text: one sentence a line, a blank line after each document."""
        units = np.frombuffer(data, dtype=np.uint8)
        ends = np.flatnonzero(units == 0x0A)
        characters = np.cumsum((units & 0xC0) != 0x80, dtype=np.int32)[ends]
        lengths = np.diff(characters, prepend=0).astype(np.int64) - 1
        documents = int((lengths == 0).sum())
        self.documents += documents
        self.sentences += len(lengths) - documents
        self.characters += int(lengths.sum())
        self.num_bytes += len(data) - len(ends)
        self.longest_sentence = max(self.longest_sentence, int(lengths.max(initial=0)))
        self._add_letters(units)

    def merge(self, other: "TextStatistics") -> None:
        """Add another's sums to these."""
        self.documents += other.documents
        self.sentences += other.sentences
        self.characters += other.characters
        self.num_bytes += other.num_bytes
        self.longest_sentence = max(self.longest_sentence, other.longest_sentence)
        self.letters = self.letters + other.letters

    def scripts(self) -> dict[str, float]:
        """Return the share of letters in each script that occurs, largest first, to three decimals."""
        total = int(self.letters.sum())
        shares = {
            name: round(count / total, 3) for name, count in zip(SCRIPTS, self.letters.tolist(), strict=True) if count
        }
        return dict(sorted(shares.items(), key=lambda item: -item[1]))

    def _add_letters(self, units: NDArray[np.uint8]) -> None:
        ascii_letters = int((((units | 0x20) - np.uint8(0x61)) < 26).sum())
        self.letters[SCRIPTS.index("Latin")] += ascii_letters
        leads = np.flatnonzero(units >= 0xC3)
        if len(leads):
            pairs = (units[leads].astype(np.uint16) << np.uint16(8)) | units[leads + 1]
            self.letters += np.bincount(_SCRIPT_OF_PAIR[pairs], minlength=len(SCRIPTS) + 1)[: len(SCRIPTS)]
