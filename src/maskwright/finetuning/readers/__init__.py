"""Labelled files as examples. `read_examples` reads any kind; the others one kind each."""

from maskwright.finetuning.readers.choices import read_choices
from maskwright.finetuning.readers.formats import is_called_a_file
from maskwright.finetuning.readers.name_lists import as_name, name_list
from maskwright.finetuning.readers.options import Format, Kind, ReadOptions, TextKind
from maskwright.finetuning.readers.questions import read_questions
from maskwright.finetuning.readers.read_as import ReadAs, read_as_from_json, to_keep, with_defaults
from maskwright.finetuning.readers.reading import Paths, read_examples
from maskwright.finetuning.readers.tagged import cut_into_words, read_tagged
from maskwright.finetuning.readers.texts import read_texts

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
