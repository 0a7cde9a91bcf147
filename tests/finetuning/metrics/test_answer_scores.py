"""Scores of answers as the scripts of SQuAD and CMRC 2018 count them: worked by hand, and by the scripts' rules again.

Floats are compared exactly, because the scripts' order of sums is part of the rules. The words of Western text were
found equal to those of NLTK 3.10.4 (`word_tokenize` with `preserve_line=True`) on all 4,675 such pieces of the texts,
questions and answers of CMRC's dev and trial files, and on 200,000 of awkward signs.
"""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import Answer, QuestionExample
from maskwright.finetuning.metrics.answers import (
    best_threshold,
    cmrc2018,
    score_questions,
    squad,
    squad_v2,
    western_words,
)


def question(key: str, *answers: str) -> QuestionExample:
    found = tuple(Answer(text=text, start=None) for text in answers)
    return QuestionExample(key=key, question="?", context="", answers=found, is_impossible=not answers)


def f1(same: int, guessed: int, wanted: int) -> float:
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
def test_squad_answers_worked_by_hand(guess: str, right: str, exact: float, overlap: float) -> None:
    assert squad([question("q", right)], {"q": guess}) == {"exact_match": 100.0 * exact, "f1": 100.0 * overlap}
    assert squad_v2([question("q", right)], {"q": guess})["f1"] == 100.0 * overlap


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
def test_cmrc_answers_worked_by_hand(guess: str, right: str, exact: float, overlap: float) -> None:
    assert cmrc2018([question("q", right)], {"q": guess}) == {
        "average": (100.0 * exact + 100.0 * overlap) * 0.5,
        "f1": 100.0 * overlap,
        "em": 100.0 * exact,
        "total": 1,
        "skip": 0,
    }


def test_the_best_right_answer_counts_and_missing_predictions_are_wrong() -> None:
    questions = [question("1", "in 1999", "1999"), question("2", "cat"), question("3", "dog")]
    assert squad(questions, {"1": "1999", "2": "dog"}) == {"exact_match": 100.0 * 1.0 / 3, "f1": 100.0 * 1.0 / 3}
    scores = cmrc2018([question("1", "北京", "北京大学"), question("2", "上海")], {"1": "北京大学"})
    assert scores == {"average": 50.0, "f1": 50.0, "em": 50.0, "total": 2, "skip": 1}


def test_right_answers_of_nothing_but_articles() -> None:
    assert squad([question("q", "the")], {"q": "a"}) == {"exact_match": 100.0, "f1": 0.0}
    # In 2.0 the question has an answer, and the right one is "".
    assert squad_v2([question("q", "the")], {"q": "!"})["HasAns_exact"] == 100
    assert squad_v2([question("q", "the", "cat")], {"q": ""})["HasAns_exact"] == 0


QUESTIONS = [question("a", "cat"), question("b"), question("c", "black cat"), question("d")]
GUESSES = {"a": "cat", "b": "mat", "c": "cat", "d": "rat"}


def test_questions_with_and_without_answers_are_scored_apart() -> None:
    assert squad_v2(QUESTIONS, {**GUESSES, "b": ""}) == {
        "exact": 50.0,
        "f1": 100.0 * (1 + 1 + f1(1, 1, 2)) / 4,
        "total": 4,
        "HasAns_exact": 50.0,
        "HasAns_f1": 100.0 * (1 + f1(1, 1, 2)) / 2,
        "HasAns_total": 2,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
    }
    assert "NoAns_exact" not in squad_v2(QUESTIONS[:1], {"a": "cat"})


def test_thresholds() -> None:
    no_answer = {"a": 0.1, "b": 0.9, "c": 0.5, "d": 0.2}
    scores = squad_v2(QUESTIONS, GUESSES, no_answer, threshold=0.5)
    assert (scores["NoAns_exact"], scores["HasAns_f1"]) == (50, 100.0 * (1 + 2 / 3) / 2)  # c at 0.5 keeps its answer
    scores = squad_v2(QUESTIONS, GUESSES, {"d": 0.9, "a": 0.1, "b": 0.8, "c": 0.3, "another": 0.0})
    # From 2 of 4 (none answered): + 1 (a), + 2/3 (c), - 1 (b), - 1 (d); exact + 1, + 0, - 1, - 1.
    assert (scores["best_f1"], scores["best_f1_thresh"]) == (100.0 * (2 + 1 + 2 / 3) / 4, 0.3)
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (75, 0.1)
    best = best_threshold(
        score_questions(QUESTIONS, dict.fromkeys("abcd", "wrong")), dict.fromkeys("abcd", 5.0), "exact"
    )
    assert (best.score, best.threshold, best.answers) == (50, 0, 0)  # 0 as in the script, whatever the scale


def test_what_cannot_be_measured_is_refused() -> None:
    for measure in (squad, squad_v2, cmrc2018):
        with pytest.raises(DataError, match="no questions"):
            measure([], {})
    for measure in (squad, cmrc2018):
        with pytest.raises(DataError, match=r"'b' has no right answer.*squad_v2"):
            measure(QUESTIONS, GUESSES)
    with pytest.raises(DataError, match="'a' has no prediction"):
        squad_v2(QUESTIONS, {})
    with pytest.raises(DataError, match="'a' has no score for the absence"):
        squad_v2(QUESTIONS, GUESSES, {"b": 1.0})


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
def test_western_text_is_split_as_nltk_splits_it(text: str, words: str) -> None:
    assert western_words(text) == words.split()


@st.composite
def measured(draw, texts, *, answerable=False):
    """Questions with right answers, and a guess and a number for each."""
    answers = st.lists(texts, min_size=int(answerable), max_size=3)
    questions = [question(str(number), *draw(answers)) for number in range(draw(st.integers(1, 6)))]
    guesses = {one.key: draw(texts) for one in questions}
    return questions, guesses, {one.key: draw(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])) for one in questions}


def plain(text):
    """SQuAD's words, found character by character."""
    kept = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    words, run = [], ""
    for sign in kept + " ":
        if sign.isalnum() or sign == "_":
            run += sign
        else:
            words.append(" " if run in ("a", "an", "the") else run)
            words.append(sign)
            run = ""
    return "".join(words).split()


def overlap(guess, right):
    left = list(right)
    same = sum(1 for word in guess if word in left and (left.remove(word) or True))
    return f1(same, len(guess), len(right)) if same else 0.0


def mean(values):
    total = 0.0
    for value in values:
        total = total + value
    return 100.0 * total / len(values)


WESTERN = st.lists(
    st.sampled_from(["a", "The", "an", "cat", "Cat", "cats,", "dog", "!", "o'clock", "1.5", "thé", "  ", "“x”"]),
    max_size=5,
).map(" ".join)


@given(measured(WESTERN), st.sampled_from([0.0, 0.25, 0.6, 1.0]))
def test_squad_by_the_rules_of_the_scripts(case, threshold):
    questions, guesses, numbers = case
    raw, kept = {}, {}
    for one in questions:
        rights = [plain(answer.text) for answer in one.answers if plain(answer.text)] or [[]]
        guess = plain(guesses[one.key])
        exact = max(float(guess == right) for right in rights)
        f1s = max(overlap(guess, right) if guess and right else float(guess == right) for right in rights)
        raw[one.key] = (exact, f1s)
        kept[one.key] = (float(not one.answers),) * 2 if numbers[one.key] > threshold else (exact, f1s)
    found = squad_v2(questions, guesses, numbers, threshold)
    with_answers = [one for one in questions if one.answers]
    without = [one for one in questions if not one.answers]
    for place, name in enumerate(("exact", "f1")):
        for prefix, part in (("", questions), ("HasAns_", with_answers), ("NoAns_", without)):
            assert found.get(f"{prefix}{name}") == (mean([kept[one.key][place] for one in part]) if part else None)
        # The best of all places where answering can stop, in ascending order of the numbers.
        gained = best = float(len(without))
        best_at = 0.0
        for one in sorted(questions, key=lambda one: numbers[one.key]):
            gained += raw[one.key][place] if one.answers else -bool(guesses[one.key])
            if gained > best:
                best, best_at = gained, numbers[one.key]
        assert (found[f"best_{name}"], found[f"best_{name}_thresh"]) == (100.0 * best / len(questions), best_at)
    if with_answers:
        rights = [[plain(answer.text) for answer in one.answers] for one in with_answers]
        given = [plain(guesses[one.key]) for one in with_answers]
        assert squad(with_answers, guesses) == {
            "exact_match": mean([float(guess in right) for guess, right in zip(given, rights, strict=True)]),
            "f1": mean([max(overlap(guess, one) for one in right) for guess, right in zip(given, rights, strict=True)]),
        }


@given(measured(st.text(alphabet="北京大学《》。’‘ 1a", max_size=8), answerable=True))
def test_cmrc_by_the_rules_of_the_script(case):
    questions, guesses, _ = case

    def without_signs(text):
        return "".join(
            sign for sign in text.lower().strip() if sign not in "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』"
        )

    def segments(text):
        # Western pieces here are digits, the letter a and ‘, which NLTK splits from its neighbors.
        cut, run = [], ""
        for sign in without_signs(text) + " ":
            if sign.isascii() and sign.isalnum():
                run += sign
                continue
            cut += [run] if run else []
            run = ""
            cut += [sign] if sign != " " else []
        return cut

    def runs(items):
        return {tuple(items[start:end]) for start in range(len(items)) for end in range(start + 1, len(items) + 1)}

    exact, f1s = [], []
    for one in questions:
        guess = segments(guesses[one.key])
        rights = [segments(answer.text) for answer in one.answers]
        same = [max(map(len, runs(guess) & runs(right)), default=0) for right in rights]
        f1s.append(max(f1(n, len(guess), len(right)) if n else 0.0 for n, right in zip(same, rights, strict=True)))
        exact.append(
            float(any(without_signs(guesses[one.key]) == without_signs(answer.text) for answer in one.answers))
        )
    scores = cmrc2018(questions, guesses)
    assert (scores["em"], scores["f1"]) == (mean(exact), mean(f1s))
    assert scores["average"] == (mean(exact) + mean(f1s)) * 0.5
