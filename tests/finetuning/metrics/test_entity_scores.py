"""Entities and their scores, against conlleval's rules written out, and worked by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.finetuning.metrics.entities import Entity, entities_of, entity_scores, is_entity_tag, mark_entities


@pytest.mark.parametrize(
    ("written", "entities"),
    [
        ("B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("B-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),
        ("O I-PER I-PER", [("PER", 1, 3)]),  # no B
        ("B-PER I-LOC I-PER", [("PER", 0, 1), ("LOC", 1, 2), ("PER", 2, 3)]),  # types change
        ("B-PER I-PER E-PER S-LOC O", [("PER", 0, 3), ("LOC", 3, 4)]),
        ("B-PER I-PER O S-PER", [("PER", 0, 2), ("PER", 3, 4)]),  # no E
        ("S-PER I-PER E-PER E-PER", [("PER", 0, 1), ("PER", 1, 3), ("PER", 3, 4)]),
        ("B-PER L-PER U-LOC I-LOC L-LOC", [("PER", 0, 2), ("LOC", 2, 3), ("LOC", 3, 5)]),
        ("B-PER M-PER E-PER S-LOC M-LOC E-LOC", [("PER", 0, 3), ("LOC", 3, 4), ("LOC", 4, 6)]),
        ("I-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),  # IOB1: B between neighbors of one type
        ("B I O B-GPE.NAM I-GPE.NAM B-a-b", [("_", 0, 2), ("GPE.NAM", 3, 5), ("a-b", 5, 6)]),
        ("", []),
    ],
)
def test_entities_of_tags(written, entities):
    assert entities_of(written.split()) == [Entity(*entity) for entity in entities]


def ends(before, tag, type_before, type_):
    """conlleval.pl, endOfChunk (with seqeval's S)."""
    pairs = {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O"), ("B", "S"), ("I", "S")}
    return before in "ES" or (before, tag) in pairs or (before != "O" and type_before != type_)


def starts(before, tag, type_before, type_):
    """conlleval.pl, startOfChunk (with seqeval's S)."""
    pairs = {("O", "I"), ("E", "E"), ("E", "I"), ("O", "E"), ("S", "E"), ("S", "I")}
    return tag in "BS" or (before, tag) in pairs or (tag != "O" and type_before != type_)


def chunks(tags):
    entities, begin, before, type_before = [], 0, "O", ""
    for index, written in enumerate([*tags, "O"]):
        tag, type_ = written[0], written[2:]
        if ends(before, tag, type_before, type_):
            entities.append((type_before, begin, index))
        if starts(before, tag, type_before, type_):
            begin = index
        before, type_before = tag, type_
    return entities


def some_tags(letters):
    return st.lists(st.sampled_from(["O", *(f"{letter}-{type_}" for letter in letters for type_ in "XY")]), max_size=9)


@given(some_tags("BIES"))
def test_entities_are_the_chunks_of_conlleval(tags):
    assert entities_of(tags) == chunks(tags)


@given(st.lists(st.tuples(some_tags("BI"), st.randoms(use_true_random=False)), min_size=1, max_size=4))
def test_scores_are_shares_of_the_entities_in_both(sentences):
    gold = [tags for tags, _ in sentences]
    predicted = [[random.choice([tag, "O", "B-X", "I-Y"]) for tag in tags] for tags, random in sentences]
    in_gold, in_predicted = (
        {(number, chunk) for number, tags in enumerate(side) for chunk in chunks(tags)} for side in (gold, predicted)
    )
    scores = entity_scores(gold, predicted)
    assert scores["recall"] == (len(in_gold & in_predicted) / len(in_gold) if in_gold else 0)
    assert scores["precision"] == (len(in_gold & in_predicted) / len(in_predicted) if in_predicted else 0)


def test_scores_worked_by_hand():
    gold = ["B-PER I-PER O B-LOC", "B-ORG I-ORG I-ORG", "O B-PER O"]
    predicted = ["B-PER I-PER O B-ORG", "B-ORG I-ORG O", "O B-PER B-PER"]
    # Gold: PER 0-2, LOC 3, ORG 0-3, PER 1. Predicted: PER 0-2, ORG 3, ORG 0-2, PER 1, PER 2. Correct: PER 0-2 and 1.
    scores = entity_scores([one.split() for one in gold], [one.split() for one in predicted])
    expected = {"f1": 2 * (2 / 5) * (2 / 4) / (2 / 5 + 2 / 4), "precision": 2 / 5, "recall": 2 / 4}
    for type_ in ("LOC", "ORG"):
        expected |= {f"{name}_{type_}": 0.0 for name in ("f1", "precision", "recall")}
    expected |= {"f1_PER": 0.8, "precision_PER": 2 / 3, "recall_PER": 1.0}
    assert scores == pytest.approx(expected, abs=1e-12)
    assert list(scores) == list(expected)


def test_tags_mark_entities_if_one_does_and_one_is_o():
    assert mark_entities(["O", "B-PER", "b-PER"])
    assert not mark_entities(["B-PER", "I-PER"])
    assert not mark_entities(["O", "B_PER", "NOUN"])
    assert [tag for tag in ("O", "B", "S-a-b", "b-PER", "B_PER", "o", "") if is_entity_tag(tag)] == ["O", "B", "S-a-b"]
