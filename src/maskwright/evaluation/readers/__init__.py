"""Labelled files as examples. `read_examples` reads any kind; the others one kind each."""

from maskwright.evaluation.readers.choices import read_choices
from maskwright.evaluation.readers.formats import is_called_a_file
from maskwright.evaluation.readers.name_lists import as_name, name_list
from maskwright.evaluation.readers.options import Format, Kind, ReadOptions, TextKind
from maskwright.evaluation.readers.questions import read_questions
from maskwright.evaluation.readers.read_as import ReadAs, read_as_from_json, to_keep, with_defaults
from maskwright.evaluation.readers.reading import Paths, read_examples
from maskwright.evaluation.readers.tagged import cut_into_words, read_tagged
from maskwright.evaluation.readers.texts import read_texts

__all__ = [
    "Format",
    "Kind",
    "Paths",
    "ReadAs",
    "ReadOptions",
    "TextKind",
    "as_name",
    "cut_into_words",
    "is_called_a_file",
    "name_list",
    "read_as_from_json",
    "read_choices",
    "read_examples",
    "read_questions",
    "read_tagged",
    "read_texts",
    "to_keep",
    "with_defaults",
]
