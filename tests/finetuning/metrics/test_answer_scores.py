"""Scores of answers as the scripts of SQuAD and CMRC 2018 count them: worked by hand, and by the scripts' rules again.

Floats are compared exactly, because the scripts' order of sums is part of the rules. The words of Western text were
found equal to those of NLTK 3.10.4 (`word_tokenize` with `preserve_line=True`) on all 4,675 such pieces of the texts,
questions and answers of CMRC's dev and trial files, and on 200,000 of awkward signs.
"""

import pytest

from maskwright.finetuning.metrics.answers import (
    best_threshold,
    cmrc2018,
    score_questions,
    squad,
    squad_v2,
    western_words,
)


def f1(same, guessed, wanted):
    precision, recall = same / guessed, same / wanted
    return (2 * precision * recall) / (precision + recall)


@pytest.mark.parametrize(
    ("guess", "right", "exact", "overlap"),
    [
        ("the  DENVER Broncos!", "Denver Broncos", 1, 1),  # articles, case, punctuation, space
        ("The Denver Broncos team", "Denver Broncos", 0, f1(2, 3, 2)),
        ("a b a", "b b", 0, f1(1, 1, 2)),  # articles are removed first: "b" against "b b"
        ("x x y", "x z", 0, f1(1, 3, 2)),  # a word counts as often as in both
        ("over-the-top", "overthetop", 1, 1),  # punctuation leaves no gap
        ("“cat”", "cat", 0, 0),  # only ASCII punctuation is removed
        ("北京", "北京大学", 0, 0),  # words end at spaces
        ("", "cat", 0, 0),
    ],
)
def test_squad_answers_worked_by_hand(guess, right, exact, overlap):
    assert squad([[right]], [guess]) == {"exact_match": 100.0 * exact, "f1": 100.0 * overlap}
    assert squad_v2([[right]], [guess])["f1"] == 100.0 * overlap


@pytest.mark.parametrize(
    ("guess", "right", "exact", "overlap"),
    [
        ("《北京大学》。", "北京大学", 1, 1),  # punctuation of the list
        ("在北京大学", "北京大学", 0, f1(4, 5, 4)),
        ("北京的大学", "北京大学", 0, f1(2, 5, 4)),  # a run without a gap, not a subsequence
        ("1990年", "1990 年", 0, 1),  # a number is one segment; spaces count for exact match only
        ("Windows XP", "windows", 0, f1(1, 2, 1)),
        ("it's 3.5%", "it 's 3.5 %", 0, 1),
        ("a-b", "ab", 1, 1),
        ("。北京", " 北京", 1, 1),  # spaces at the ends are removed first,
        ("北京 。", "北京", 0, 1),  # so that one before punctuation stays
        ("‘北京’", "北京", 0, f1(2, 3, 2)),  # the list holds ’ and not ‘
        ("", "北京", 0, 0),
    ],
)
def test_cmrc_answers_worked_by_hand(guess, right, exact, overlap):
    assert cmrc2018([[right]], [guess]) == {
        "f1": 100.0 * overlap,
        "exact_match": 100.0 * exact,
        "average": (100.0 * exact + 100.0 * overlap) * 0.5,
    }


def test_the_best_right_answer_counts():
    third = 100.0 * 1.0 / 3
    assert squad([["in 1999", "1999"], ["cat"], ["dog"]], ["1999", "dog", ""]) == {"exact_match": third, "f1": third}
    assert cmrc2018([["北京", "北京大学"], ["上海"]], ["北京大学", ""])["average"] == 50.0


def test_right_answers_of_nothing_but_articles():
    assert squad([["the"]], ["a"]) == {"exact_match": 100.0, "f1": 0.0}
    # In 2.0 the question has an answer, and the right one is "".
    assert squad_v2([["the"]], ["!"])["HasAns_exact"] == 100
    assert squad_v2([["the", "cat"]], [""])["HasAns_exact"] == 0


RIGHTS = [["cat"], [], ["black cat"], []]
GUESSES = ["cat", "mat", "cat", "rat"]


def test_questions_with_and_without_answers_are_scored_apart():
    assert squad_v2(RIGHTS, ["cat", "", "cat", "rat"]) == {
        "f1": 100.0 * (1 + 1 + f1(1, 1, 2)) / 4,
        "exact_match": 50.0,
        "HasAns_exact": 50.0,
        "HasAns_f1": 100.0 * (1 + f1(1, 1, 2)) / 2,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
    }
    assert "NoAns_exact" not in squad_v2(RIGHTS[:1], ["cat"])


def test_thresholds():
    scores = score_questions(RIGHTS, GUESSES)
    # From 2 of 4 (none answered): + 1 (first), + 2/3 (third), - 1 (second), - 1 (last); exact + 1, + 0, - 1, - 1.
    assert best_threshold(scores, [0.1, 0.8, 0.3, 0.9], "f1") == (100.0 * (2 + 1 + 2 / 3) / 4, 0.3, 2)
    assert best_threshold(scores, [0.1, 0.8, 0.3, 0.9], "exact") == (75, 0.1, 1)
    wrong = score_questions(RIGHTS, ["wrong"] * 4)
    assert best_threshold(wrong, [5.0] * 4, "exact") == (50, 0, 0)  # 0 as in the script, whatever the scale


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("getchu.com", "getchu.com"),
        ("it's 3,5%.", "it 's 3,5 % ."),
        ("a, b,c", "a , b , c"),
        ("i can't cannot", "i ca n't can not"),
        ('"yes" (no)', "`` yes '' ( no )"),
        ("rock 'n roll", "rock 'n roll"),
        ("$10.2 & 5!", "$ 10.2 & 5 !"),
        ("wait... u.s.", "wait ... u.s ."),
        ("u.s. army", "u.s. army"),
        ("'tis gonna 'em", "' tis gon na ' em"),
        ("1–2", "1 – 2"),
        (" ", ""),
    ],
)
def test_western_text_is_split_as_nltk_splits_it(text, words):
    assert western_words(text) == words.split()
