"""Scores of answers as the scripts of SQuAD and CMRC 2018 count them: worked by hand, and by the scripts' rules again.

Floats are compared exactly, because the scripts' order of sums is part of the rules. The words of Western text were
found equal to those of NLTK 3.10.4 (`word_tokenize` with `preserve_line=True`) on all 4,675 such pieces of the texts,
questions and answers of CMRC's dev and trial files, and on 200,000 of awkward signs.
"""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.finetuning.metrics.answers import (
    best_threshold,
    cmrc2018,
    score_questions,
    squad,
    squad_v2,
    western_words,
)


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
def test_cmrc_answers_worked_by_hand(guess: str, right: str, exact: float, overlap: float) -> None:
    assert cmrc2018([[right]], [guess]) == {
        "f1": 100.0 * overlap,
        "exact_match": 100.0 * exact,
        "average": (100.0 * exact + 100.0 * overlap) * 0.5,
    }


def test_the_best_right_answer_counts() -> None:
    third = 100.0 * 1.0 / 3
    assert squad([["in 1999", "1999"], ["cat"], ["dog"]], ["1999", "dog", ""]) == {"exact_match": third, "f1": third}
    assert cmrc2018([["北京", "北京大学"], ["上海"]], ["北京大学", ""])["average"] == 50.0


def test_right_answers_of_nothing_but_articles() -> None:
    assert squad([["the"]], ["a"]) == {"exact_match": 100.0, "f1": 0.0}
    # In 2.0 the question has an answer, and the right one is "".
    assert squad_v2([["the"]], ["!"])["HasAns_exact"] == 100
    assert squad_v2([["the", "cat"]], [""])["HasAns_exact"] == 0


RIGHTS = [["cat"], [], ["black cat"], []]
GUESSES = ["cat", "mat", "cat", "rat"]


def test_questions_with_and_without_answers_are_scored_apart() -> None:
    assert squad_v2(RIGHTS, ["cat", "", "cat", "rat"]) == {
        "f1": 100.0 * (1 + 1 + f1(1, 1, 2)) / 4,
        "exact_match": 50.0,
        "HasAns_exact": 50.0,
        "HasAns_f1": 100.0 * (1 + f1(1, 1, 2)) / 2,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
    }
    assert "NoAns_exact" not in squad_v2(RIGHTS[:1], ["cat"])


def test_thresholds() -> None:
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
def test_western_text_is_split_as_nltk_splits_it(text: str, words: str) -> None:
    assert western_words(text) == words.split()


@st.composite
def measured(draw, texts, *, answerable=False):
    """Right answers to questions, and a guess and a number for each."""
    answers = st.lists(texts, min_size=int(answerable), max_size=3)
    rights = draw(st.lists(answers, min_size=1, max_size=6))
    numbers = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
    return rights, [draw(texts) for _ in rights], [draw(numbers) for _ in rights]


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


@given(measured(WESTERN))
def test_squad_by_the_rules_of_the_scripts(case):
    rights, guesses, numbers = case
    scored = []
    for texts, guess in zip(rights, map(plain, guesses), strict=True):
        kept = [plain(text) for text in texts if plain(text)] or [[]]
        exact = max(float(guess == right) for right in kept)
        scored.append(
            (exact, max(overlap(guess, right) if guess and right else float(guess == right) for right in kept))
        )
    found, questions = squad_v2(rights, guesses), score_questions(rights, guesses)
    assert [(one.exact, one.f1) for one in questions] == scored
    for place, (name, whole) in enumerate((("exact", "exact_match"), ("f1", "f1"))):
        parts = [
            [one[place] for one, texts in zip(scored, rights, strict=True) if bool(texts) is has]
            for has in (True, False)
        ]
        assert found[whole] == mean([one[place] for one in scored])
        for prefix, part in zip(("HasAns", "NoAns"), parts, strict=True):
            assert found.get(f"{prefix}_{name}") == (mean(part) if part else None)
        # The best of all places where answering can stop, in ascending order of the numbers.
        gained = best = float(sum(not texts for texts in rights))
        best_at = 0.0
        for number in sorted(range(len(rights)), key=lambda number: numbers[number]):
            gained += scored[number][place] if rights[number] else -bool(guesses[number])
            if gained > best:
                best, best_at = gained, numbers[number]
        assert best_threshold(questions, numbers, name)[:2] == (100.0 * best / len(rights), best_at)
    if answered := [number for number, texts in enumerate(rights) if texts]:
        right = [[plain(text) for text in rights[number]] for number in answered]
        given = [plain(guesses[number]) for number in answered]
        assert squad([rights[number] for number in answered], [guesses[number] for number in answered]) == {
            "exact_match": mean([float(guess in texts) for guess, texts in zip(given, right, strict=True)]),
            "f1": mean([max(overlap(guess, one) for one in texts) for guess, texts in zip(given, right, strict=True)]),
        }


@given(measured(st.text(alphabet="北京大学《》。’‘ 1a", max_size=8), answerable=True))
def test_cmrc_by_the_rules_of_the_script(case):
    rights, guesses, _ = case

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
    for texts, guess in zip(rights, guesses, strict=True):
        guessed, wanted = segments(guess), [segments(text) for text in texts]
        same = [max(map(len, runs(guessed) & runs(right)), default=0) for right in wanted]
        f1s.append(max(f1(n, len(guessed), len(right)) if n else 0.0 for n, right in zip(same, wanted, strict=True)))
        exact.append(float(any(without_signs(guess) == without_signs(text) for text in texts)))
    average = (mean(exact) + mean(f1s)) * 0.5
    assert cmrc2018(rights, guesses) == {"f1": mean(f1s), "exact_match": mean(exact), "average": average}
