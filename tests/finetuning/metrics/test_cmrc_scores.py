"""Scores of answers as the script of CMRC 2018 counts them. Numbers are worked by hand; floats are compared exactly.

The words of Western text were found equal to those of NLTK 3.10.4 (`word_tokenize` with `preserve_line=True`) on all
4,675 such pieces of the texts, questions and answers of CMRC's dev and trial files, and on 200,000 of awkward signs.
"""

import pytest

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import Answer, QuestionExample
from maskwright.finetuning.metrics.answers import cmrc2018, western_words


def question(key: str, *answers: str) -> QuestionExample:
    found = tuple(Answer(text=text, start=None) for text in answers)
    return QuestionExample(key=key, question="?", context="", answers=found)


def f1(same: int, guessed: int, wanted: int) -> float:
    precision, recall = same / guessed, same / wanted
    return (2 * precision * recall) / (precision + recall)


@pytest.mark.parametrize(
    ("guess", "right", "exact", "overlap"),
    [
        ("北京大学", "北京大学", 1, 1),
        ("《北京大学》。", "北京大学", 1, 1),  # punctuation of the list
        ("在北京大学", "北京大学", 0, f1(4, 5, 4)),
        ("北京的大学", "北京大学", 0, f1(2, 5, 4)),  # a run without a gap, not a subsequence
        ("1990年", "1990 年", 0, 1),  # a number is one segment, spaces part nothing; but they count for exact match
        ("Windows XP", "windows", 0, f1(1, 2, 1)),
        ("it's 3.5%", "it 's 3.5 %", 0, 1),
        ("a-b", "ab", 1, 1),
        ("。北京", " 北京", 1, 1),  # spaces at the ends go first,
        ("北京 。", "北京", 0, 1),  # so that one before punctuation stays
        ("‘北京’", "北京", 0, f1(2, 3, 2)),  # the list holds ’ and not ‘
        ("", "北京", 0, 0),
        ("上海", "北京", 0, 0),
        ("東京、大阪", "東京大阪", 1, 1),
    ],
)
def test_answers_are_compared_as_in_the_script(guess: str, right: str, exact: float, overlap: float) -> None:
    scores = cmrc2018([question("q", right)], {"q": guess})
    assert scores == {
        "average": (100.0 * exact + 100.0 * overlap) * 0.5,
        "f1": 100.0 * overlap,
        "em": 100.0 * exact,
        "total": 1,
        "skip": 0,
    }


def test_the_best_right_answer_counts_and_missing_predictions_are_skipped_and_wrong() -> None:
    questions = [question("1", "北京", "北京大学"), question("2", "上海")]
    assert cmrc2018(questions, {"1": "北京大学"}) == {"average": 50.0, "f1": 50.0, "em": 50.0, "total": 2, "skip": 1}


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(DataError, match="no questions"):
        cmrc2018([], {})
    with pytest.raises(DataError, match="'q' has no right answer"):
        cmrc2018([question("q")], {"q": ""})


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
def test_western_text_is_cut_as_nltk_cuts_it(text: str, words: str) -> None:
    assert list(western_words(text)) == words.split()
