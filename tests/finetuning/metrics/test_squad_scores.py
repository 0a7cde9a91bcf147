"""Scores of answers as SQuAD's scripts count them. Numbers are worked by hand; floats are compared exactly."""

import pytest

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import Answer, QuestionExample
from maskwright.finetuning.metrics.answers import best_threshold, score_questions, squad, squad_v2


def question(key: str, *answers: str) -> QuestionExample:
    return QuestionExample(
        key=key,
        question="?",
        context="",
        answers=tuple(Answer(text=text, start=None) for text in answers),
        is_impossible=not answers,
    )


@pytest.mark.parametrize(
    ("guess", "right", "exact", "f1"),
    [
        ("Denver Broncos", "Denver Broncos", 1, 1),
        ("the  DENVER Broncos!", "Denver Broncos", 1, 1),  # articles, case, punctuation, space
        ("The Denver Broncos team", "Denver Broncos", 0, 2 * (2 / 3) * 1 / (2 / 3 + 1)),
        ("a b a", "b b", 0, 0.0 + 2 * 1 * (1 / 2) / (1 + 1 / 2)),  # articles go first: "b" against "b b"
        ("x x y", "x z", 0, (2 * (1 / 3) * (1 / 2)) / (1 / 3 + 1 / 2)),  # a word counts as often as in both
        ("over-the-top", "overthetop", 1, 1),  # punctuation leaves no gap
        ("théâtre", "theatre", 0, 0),
        ("“cat”", "cat", 0, 0),  # only ASCII punctuation goes
        ("北京", "北京大学", 0, 0),  # words are what stands between spaces
        ("", "cat", 0, 0),
    ],
)
def test_answers_are_compared_as_in_the_script(guess: str, right: str, exact: float, f1: float) -> None:
    assert squad([question("q", right)], {"q": guess}) == {"exact_match": 100.0 * exact, "f1": 100.0 * f1}
    assert squad_v2([question("q", right)], {"q": guess})["f1"] == 100.0 * f1


def test_the_best_right_answer_counts_and_missing_predictions_are_wrong() -> None:
    questions = [question("1", "in 1999", "1999"), question("2", "cat"), question("3", "dog")]
    scores = squad(questions, {"1": "1999", "2": "dog"})
    assert scores == {"exact_match": 100.0 * 1.0 / 3, "f1": 100.0 * 1.0 / 3}


def test_nothing_but_articles_is_right_for_itself_and_overlaps_with_nothing_in_1_1() -> None:
    assert squad([question("q", "the")], {"q": "a"}) == {"exact_match": 100.0, "f1": 0.0}


def test_2_0_scores_questions_with_and_without_answers_apart() -> None:
    questions = [question("a", "cat"), question("b"), question("c", "black cat"), question("d")]
    scores = squad_v2(questions, {"a": "cat", "b": "", "c": "cat", "d": "dog"})
    two_thirds = (2 * 1 * (1 / 2)) / (1 + 1 / 2)
    assert scores == {
        "exact": 50.0,
        "f1": 100.0 * (1 + 1 + two_thirds) / 4,
        "total": 4,
        "HasAns_exact": 50.0,
        "HasAns_f1": 100.0 * (1 + two_thirds) / 2,
        "HasAns_total": 2,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
    }
    assert "NoAns_exact" not in squad_v2(questions[:1], {"a": "cat"})


def test_2_0_right_answers_of_nothing_but_articles_do_not_count() -> None:
    # The question counts as one with an answer, and the right one is "".
    assert squad_v2([question("q", "the")], {"q": "!"})["HasAns_exact"] == 100
    assert squad_v2([question("q", "the", "cat")], {"q": ""})["HasAns_exact"] == 0


QUESTIONS = [question("a", "cat"), question("b"), question("c", "black cat"), question("d")]
GUESSES = {"a": "cat", "b": "mat", "c": "cat", "d": "rat"}


def test_threshold_takes_answers_back() -> None:
    unsure = {"a": 0.1, "b": 0.9, "c": 0.5, "d": 0.2}
    scores = squad_v2(QUESTIONS, GUESSES, unsure, threshold=0.5)
    assert scores["NoAns_exact"] == 50  # b is taken back; at 0.5 c is not
    assert scores["HasAns_f1"] == 100.0 * (1 + 2 / 3) / 2
    assert squad_v2(QUESTIONS, GUESSES, unsure, threshold=0.49)["HasAns_f1"] == 50


def test_best_threshold_is_the_number_of_the_last_question_that_keeps_its_answer() -> None:
    unsure = {"d": 0.9, "a": 0.1, "b": 0.8, "c": 0.3, "somewhere else": 0.0}
    scores = squad_v2(QUESTIONS, GUESSES, unsure)
    # From 2 of 4 (none answered): + 1 (a), + 2/3 (c), - 1 (b), - 1 (d); exact + 1, + 0, - 1, - 1.
    assert scores["best_f1"] == 100.0 * (2 + 1 + 2 / 3) / 4
    assert scores["best_f1_thresh"] == 0.3
    assert scores["best_exact"] == 75
    assert scores["best_exact_thresh"] == 0.1


def test_where_no_answer_is_best_the_threshold_is_zero_as_in_the_script() -> None:
    scored = score_questions(QUESTIONS, dict.fromkeys("abcd", "wrong"))
    best = best_threshold(scored, dict.fromkeys("abcd", 5.0), "exact")
    assert (best.score, best.threshold, best.answers) == (50, 0, 0)


def test_what_cannot_be_measured_is_refused() -> None:
    for measure in (squad, squad_v2):
        with pytest.raises(DataError, match="no questions"):
            measure([], {})
    with pytest.raises(DataError, match=r"'b' has no right answer.*squad_v2"):
        squad(QUESTIONS, GUESSES)
    with pytest.raises(DataError, match="'a' has no prediction"):
        squad_v2(QUESTIONS, {})
    with pytest.raises(DataError, match="'a' has no score for the absence"):
        squad_v2(QUESTIONS, GUESSES, {"b": 1.0})
