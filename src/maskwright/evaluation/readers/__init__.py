"""Labelled files as examples. `read_examples` reads any kind; the others one kind each."""

from maskwright.evaluation.readers.choices import read_choices
from maskwright.evaluation.readers.options import Format, Kind, ReadOptions, TextKind
from maskwright.evaluation.readers.questions import read_questions
from maskwright.evaluation.readers.reading import read_examples
from maskwright.evaluation.readers.tagged import cut_into_words, read_tagged
from maskwright.evaluation.readers.texts import read_texts

__all__ = [
    "Format",
    "Kind",
    "ReadOptions",
    "TextKind",
    "cut_into_words",
    "read_choices",
    "read_examples",
    "read_questions",
    "read_tagged",
    "read_texts",
]
