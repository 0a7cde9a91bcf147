"""Errors: four things in one sentence, whole after a trip between processes."""

import pickle

import pytest

from maskwright.core.errors import DataError, MaskwrightError, RecipeError, nearest, unknown_name


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MaskwrightError("the file is empty"), "the file is empty."),
        (MaskwrightError("the file is empty."), "the file is empty."),
        (MaskwrightError("x is 3", allowed="1, 2"), "x is 3. Allowed: 1, 2."),
        (MaskwrightError("x is 3", hint="Choose 1"), "x is 3. Choose 1."),
        (MaskwrightError("x is 3", hint="Did you mean 1?"), "x is 3. Did you mean 1?"),
        (MaskwrightError("x is 3", hint="Run `maskwright recipes`"), "x is 3. Run `maskwright recipes`"),
        (MaskwrightError("x", allowed="a, ...", hint="Choose."), "x. Allowed: a, ... Choose."),
    ],
)
def test_message_reads_as_sentences(error, text):
    assert str(error) == text


def test_errors_survive_pickling_with_their_kind():
    error = pickle.loads(pickle.dumps(DataError("line 3 is cut", allowed="JSON", hint="Repair it")))
    assert type(error) is DataError
    assert (error.problem, error.allowed, error.hint) == ("line 3 is cut", "JSON", "Repair it")


def test_nearest_finds_a_slip_and_nothing_else():
    options = ["bert/base", "bert/tiny", "roberta/base"]
    assert nearest("bert/bse", options) == "bert/base"
    assert nearest("robert/base", options) == "roberta/base"
    assert nearest("zzz", options) is None


def test_unknown_name_lists_and_suggests():
    error = unknown_name(RecipeError, "recipe", "bert/bse", ["bert/tiny", "bert/base"], "--recipe: ")
    assert isinstance(error, RecipeError)
    assert str(error) == (
        "--recipe: unknown recipe 'bert/bse'. Allowed: bert/base, bert/tiny. Did you mean 'bert/base'?"
    )
