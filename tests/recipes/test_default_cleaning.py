"""What a recipe reads decides how its text is cleaned, unless the user says otherwise."""

import pytest

from maskwright.data.cleaning.text import Cleaning
from maskwright.recipes import catalog
from maskwright.recipes.default_cleaning import default_cleaning


def test_dialogues_are_read_a_turn_a_line_and_keep_turns_that_come_again():
    cleaning = default_cleaning(catalog.get("ernie/base-dialogue"))
    assert (cleaning.line_breaks, cleaning.deduplicate) == ("sentence", "documents")
    assert cleaning == Cleaning().replace(line_breaks="sentence", deduplicate="documents")


@pytest.mark.parametrize("name", [name for name in catalog.names() if catalog.get(name).format.kind != "dialogue"])
def test_running_text_is_cleaned_as_usual(name):
    assert default_cleaning(catalog.get(name)) == Cleaning()
