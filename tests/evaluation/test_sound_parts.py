"""Parts that say less than they seem to: the same file or its copy, texts of two parts, few examples."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.errors import DataError
from maskwright.evaluation.examples import Answer, ChoiceExample, Example, QuestionExample, TaggedExample, TextExample
from maskwright.evaluation.readers import Kind
from maskwright.evaluation.sound_parts import FEW, doubts, refuse_same_files


def text(*texts: str, label: str | None = "a") -> TextExample:
    return TextExample(key="1", texts=texts, label=label)


def question(asked: str, context: str) -> QuestionExample:
    return QuestionExample(key="1", question=asked, context=context, answers=(Answer(text="x", start=None),))


def choice(*options: str, label: int = 0) -> ChoiceExample:
    return ChoiceExample(key="1", context="c", question="q", options=options, label=label)


def tagged(*words: str) -> TaggedExample:
    return TaggedExample(key="1", words=words, tags=("O",) * len(words))


def test_a_file_under_another_name_and_its_copy_are_refused(tmp_path: Path) -> None:
    file, copy, other = tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "c.csv"
    for path, held in ((file, "text"), (copy, "text"), (other, "texT")):
        path.write_text(held, encoding="utf-8")
    refuse_same_files({"train": file, "dev": other})
    refuse_same_files({"train": [file, copy]})
    with pytest.raises(DataError, match=r"--dev .*b\.csv are the same.*or leave it out: a tenth of --train"):
        refuse_same_files({"train": [other, file], "dev": copy})
    with pytest.raises(DataError, match=r"--dev .* and --test .* leave it out\.$"):
        refuse_same_files({"train": file, "dev": other, "test": str(tmp_path / "." / "c.csv")})
    folder = tmp_path / "race"
    folder.mkdir()
    with pytest.raises(DataError, match="are the same examples"):
        refuse_same_files({"train": folder, "test": tmp_path / "x" / ".." / "race"})


def test_what_cannot_be_read_is_left_to_who_reads_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    refuse_same_files({"train": tmp_path / "a", "dev": tmp_path / "b", "test": tmp_path / "missing"})
    refuse_same_files({"train": tmp_path / "none", "dev": tmp_path / "missing"})


@pytest.mark.parametrize(
    ("kind", "train", "dev", "told"),
    [
        ("classification", text("a"), [text("a", label="b"), text("A")], "1 of 2 texts is in train too"),
        ("classification", text("a", "b"), [text("a", "b")] * 2 + [text("b", "a")], "2 of 3 pairs of texts are"),
        ("tagging", tagged("a", "b"), [tagged("a", "b"), tagged("a")], "1 of 2 sentences is"),
        ("question_answering", question("q", "c"), [question("q", "c"), question("q", "d")], "1 of 2 questions is"),
        ("multiple_choice", choice("a", "b"), [choice("a", "b", label=1), choice("b", "a")], "1 of 2 questions is"),
    ],
)
def test_texts_of_two_parts_are_counted(kind: Kind, train: Example, dev: list[Example], told: str) -> None:
    ((part, doubt),) = doubts({"train": [train], "dev": dev}, kind)
    assert part == "dev"
    assert doubt.startswith(told)


@given(
    st.lists(st.sampled_from("abcdef"), max_size=60), st.lists(st.sampled_from("abcdefgh"), min_size=50, max_size=60)
)
def test_the_count_is_that_of_a_plain_search(train: list[str], test: list[str]) -> None:
    found = list(doubts({"train": [*map(text, train)], "test": [*map(text, test)]}, "classification"))
    seen = len([one for one in test if any(one == other for other in train)])
    expected = f"{seen} of {len(test)} texts {'is' if seen == 1 else 'are'} in train too"
    assert found == ([("test", expected)] if seen else [])


def test_few_examples_are_told_in_points_where_each_counts_the_same() -> None:
    train = [text("x")]
    few = [text(str(number)) for number in range(6)]
    assert list(doubts({"train": train, "dev": few}, "classification")) == [
        ("dev", "with 6 examples, one is 17 points of 100")
    ]
    assert list(doubts({"train": train, "dev": few[:1]}, "regression")) == [
        ("dev", "with 1 example, scores say little")
    ]
    enough = [text(str(number)) for number in range(FEW)]
    assert not list(doubts({"train": train, "dev": enough}, "classification"))
    assert not list(doubts({"train": train, "test": [text("a", label=None)]}, "classification"))
