"""Parts that say less than they seem to: texts of two parts, few examples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.finetuning.checks import FEW, doubts
from maskwright.finetuning.examples import Answer, ChoiceExample, Example, QuestionExample, TaggedExample, TextExample


def text(*texts: str, label: str | None = "a") -> TextExample:
    return TextExample(key="1", texts=texts, label=label)


def question(asked: str, context: str) -> QuestionExample:
    return QuestionExample(key="1", question=asked, context=context, answers=(Answer(text="x", start=None),))


def choice(*options: str, label: int = 0) -> ChoiceExample:
    return ChoiceExample(key="1", context="c", question="q", options=options, label=label)


def tagged(*words: str) -> TaggedExample:
    return TaggedExample(key="1", words=words, tags=("O",) * len(words))


@pytest.mark.parametrize(
    ("train", "dev", "told"),
    [
        (text("a"), [text("a", label="b"), text("A")], "1 of 2 texts also in train"),
        (text("a", "b"), [text("a", "b")] * 2 + [text("b", "a")], "2 of 3 pairs of texts also"),
        (tagged("a", "b"), [tagged("a", "b"), tagged("a")], "1 of 2 sentences also"),
        (question("q", "c"), [question("q", "c"), question("q", "d")], "1 of 2 questions also"),
        (choice("a", "b"), [choice("a", "b", label=1), choice("b", "a")], "1 of 2 questions also"),
    ],
)
def test_texts_of_two_parts_are_counted(train: Example, dev: list[Example], told: str) -> None:
    ((part, doubt),) = doubts({"train": [train], "dev": dev})
    assert part == "dev"
    assert doubt.startswith(told)


@given(st.text("abcdef", max_size=60), st.text("abcdefgh", min_size=50, max_size=60))
def test_the_count_is_that_of_a_plain_search(train: str, test: str) -> None:
    found = list(doubts({"train": [*map(text, train)], "test": [*map(text, test)]}))
    seen = len([one for one in test if any(one == other for other in train)])
    share = f"{seen} of {len(test)}" if seen < len(test) else f"all {seen}"
    expected = f"{share} texts also in train"
    assert found == ([("test", expected)] if seen else [])


def test_few_examples_are_told() -> None:
    train = [text("x")]
    few = [text(str(number)) for number in range(6)]
    assert list(doubts({"train": train, "dev": few})) == [("dev", "6 examples, each 17 % of the score")]
    assert list(doubts({"train": train, "dev": few[:1]})) == [("dev", "1 example, each 100 % of the score")]
    enough = [text(str(number)) for number in range(FEW)]
    assert not list(doubts({"train": train, "dev": enough}))
    assert not list(doubts({"train": train, "test": [text("a", label=None)]}))
