"""Entities and their strict scores. All numbers are worked by hand and were found equal to those of seqeval 1.2.2
(mode "strict"; the schemes IOB2, IOBES, BILOU, and IOB1 for tags of I alone; BMES is IOBES with M for I)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.errors import DataError
from maskwright.finetuning.metrics import Entity, TagScheme, entities_of, entity_scores, scheme_of
from maskwright.finetuning.metrics.entities import is_entity_tag, mark_entities


def tags(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize(
    ("scheme", "written", "entities"),
    [
        ("BIO", "B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("BIO", "B-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),
        ("BIO", "O I-PER I-PER", []),  # nothing begins
        ("BIO", "B-PER I-LOC I-PER", [("PER", 0, 1)]),  # another type ends it and begins nothing
        ("IOBES", "B-PER I-PER E-PER S-LOC O", [("PER", 0, 3), ("LOC", 3, 4)]),
        ("IOBES", "B-PER I-PER O S-PER", [("PER", 3, 4)]),  # never ended
        ("IOBES", "B-PER E-LOC E-PER S-LOC S-LOC", [("LOC", 3, 4), ("LOC", 4, 5)]),
        ("BILOU", "B-PER L-PER U-LOC I-LOC L-LOC", [("PER", 0, 2), ("LOC", 2, 3)]),
        ("BMES", "B-PER M-PER E-PER S-LOC M-LOC E-LOC", [("PER", 0, 3), ("LOC", 3, 4)]),
        ("IO", "I-PER I-PER I-LOC O I-LOC", [("PER", 0, 2), ("LOC", 2, 3), ("LOC", 4, 5)]),
        ("IO", "I-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),  # IOB1's mark between neighbours
        ("BIO", "B I O B-GPE.NAM I-GPE.NAM B-a-b", [("_", 0, 2), ("GPE.NAM", 3, 5), ("a-b", 5, 6)]),
        ("BIO", "", []),
    ],
)
def test_entities_are_read_off_by_the_rules_of_the_scheme(
    scheme: TagScheme, written: str, entities: list[tuple[str, int, int]]
) -> None:
    assert entities_of(tags(written), scheme) == [Entity(*entity) for entity in entities]


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        (["B-PER I-PER O", "O O"], "BIO"),
        (["B-PER O B-LOC"], "BIO"),
        (["I-PER I-PER O I-LOC"], "IO"),
        (["O I-PER B-PER"], "IO"),  # IOB1: a B only between neighbours of one type
        (["S-PER O"], "IOBES"),
        (["B-PER E-PER"], "IOBES"),
        (["B-PER I-PER L-PER O U-LOC"], "BILOU"),
        (["B-PER M-PER E-PER O S-LOC"], "BMES"),
        (["O O"], "IO"),
    ],
)
def test_the_scheme_is_told_by_the_tags(sentences: list[str], scheme: TagScheme) -> None:
    assert scheme_of([tags(sentence) for sentence in sentences]) == scheme


GOLD = ["B-PER I-PER O B-LOC", "B-ORG I-ORG I-ORG", "O B-PER O"]
PREDICTED = ["B-PER I-PER O B-ORG", "B-ORG I-ORG O", "O B-PER B-PER"]
# There: PER 0-2, LOC 3, ORG 0-3, PER 1. Told: PER 0-2, ORG 3, ORG 0-2, PER 1, PER 2. Right: both persons.
STRICT = {
    "f1": 2 * (2 / 5) * (2 / 4) / (2 / 5 + 2 / 4),
    "precision": 2 / 5,
    "recall": 2 / 4,
    "f1_LOC": 0.0,
    "precision_LOC": 0.0,
    "recall_LOC": 0.0,
    "f1_ORG": 0.0,
    "precision_ORG": 0.0,
    "recall_ORG": 0.0,
    "f1_PER": 0.8,
    "precision_PER": 2 / 3,
    "recall_PER": 1.0,
}


def as_iobes(written: str) -> str:
    """Write BIO as IOBES."""
    given, out = tags(written), []
    for tag, after in zip(given, [*given[1:], "O"], strict=True):
        goes_on = after == f"I{tag[1:]}"
        out.append(tag if tag == "O" or goes_on else {"B": "S", "I": "E"}[tag[0]] + tag[1:])
    return " ".join(out)


def test_strict_scores_are_those_worked_by_hand() -> None:
    bio = entity_scores([tags(one) for one in GOLD], [tags(one) for one in PREDICTED], scheme="BIO")
    assert bio == pytest.approx(STRICT, abs=1e-12)
    assert list(bio) == list(STRICT)
    iobes = entity_scores(
        [tags(as_iobes(one)) for one in GOLD], [tags(as_iobes(one)) for one in PREDICTED], scheme="IOBES"
    )
    assert iobes == pytest.approx(STRICT, abs=1e-12)


def test_strict_scores_of_tags_without_beginnings_are_those_worked_by_hand() -> None:
    gold, predicted = tags("I-PER I-PER O I-LOC I-ORG"), tags("I-PER I-PER I-PER I-LOC I-ORG")
    # There: PER 0-2, LOC 3, ORG 4. Told: PER 0-3, LOC 3, ORG 4.
    scores = entity_scores([gold], [predicted], scheme="IO")
    assert scores["f1"] == scores["precision"] == scores["recall"] == pytest.approx(2 / 3)
    assert scores["f1_PER"] == 0
    assert scores["f1_LOC"] == scores["f1_ORG"] == 1


def test_long_entity_that_is_hardly_touched_is_missed() -> None:
    long = ["B-PER", *["I-PER"] * 299]
    scores = entity_scores([long], [["B-PER", *["O"] * 299]], scheme="BIO")
    assert scores["precision"] == scores["recall"] == 0


some_tags = st.lists(st.sampled_from([f"{letter}-{type_}" for letter in "BI" for type_ in "XY"] + ["O"]), max_size=9)


@given(st.lists(st.tuples(some_tags, st.randoms(use_true_random=False)), min_size=1, max_size=4))
def test_scores_are_the_shares_of_spans_that_are_in_both(sentences: list[tuple[list[str], object]]) -> None:
    gold = [one for one, _ in sentences]
    predicted = [[random.choice([tag, "O", "B-X", "I-Y"]) for tag in one] for one, random in sentences]  # type: ignore[attr-defined]
    spans = [
        {(number, entity) for number, one in enumerate(side) for entity in entities_of(one, "BIO")}
        for side in (gold, predicted)
    ]
    right = len(spans[0] & spans[1])
    scores = entity_scores(gold, predicted, scheme="BIO")
    assert scores["recall"] == pytest.approx(right / len(spans[0]) if spans[0] else 0)
    assert scores["precision"] == pytest.approx(right / len(spans[1]) if spans[1] else 0)


def test_what_is_no_tag_or_does_not_fit_is_refused() -> None:
    with pytest.raises(DataError, match=r"'PER' is not a tag.*B-PER"):
        scheme_of([["PER"]])
    with pytest.raises(DataError, match="E, I, which no scheme"):
        scheme_of([["I-PER", "E-PER"]])
    with pytest.raises(DataError, match="'E-PER' is none of BIO"):
        entities_of(["E-PER"], "BIO")
    with pytest.raises(DataError, match="sentence 0 has 2 words, and 1 tags"):
        entity_scores([["O", "O"]], [["O"]], scheme="BIO")
    with pytest.raises(DataError, match="0 labeled examples"):
        entity_scores([], [], scheme="BIO")


def test_tags_are_of_entities_where_one_is_and_o_too() -> None:
    assert mark_entities(["O", "B-PER", "b-PER"])
    assert not mark_entities(["B-PER", "I-PER"])
    assert not mark_entities(["O", "B_PER", "NOUN"])
    assert [tag for tag in ("O", "B", "S-a-b", "b-PER", "B_PER", "o", "") if is_entity_tag(tag)] == ["O", "B", "S-a-b"]
