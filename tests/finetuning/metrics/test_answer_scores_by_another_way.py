"""Scores of answers against the scripts' rules once more, written plainly, character by character and word by word.

The oracle below shares nothing with the program but the rules (evaluate-v1.1.py, evaluate-v2.0.py,
cmrc2018_evaluate.py): floats are compared exactly, because the scripts' order of sums is part of what is promised.
"""

import string

from hypothesis import given
from hypothesis import strategies as st

from maskwright.finetuning.examples import Answer, QuestionExample
from maskwright.finetuning.metrics.answers import cmrc2018, squad, squad_v2

_CMRC_SIGNS = "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』"

western = st.lists(
    st.sampled_from(["a", "The", "an", "cat", "Cat", "cats,", "dog", "!", "o'clock", "1.5", "thé", "  ", "“x”"]),
    max_size=5,
).map(" ".join)
chinese = st.text(alphabet="北京大学《》。’‘ 1a", max_size=8)


@st.composite
def measured(draw, texts, *, answerable=False):
    """Questions with right answers, and a guess and a number for each."""
    count = draw(st.integers(1, 6))
    questions = [
        QuestionExample(
            key=str(number),
            question="?",
            context="",
            answers=tuple(
                Answer(text=text, start=None) for text in draw(st.lists(texts, min_size=int(answerable), max_size=3))
            ),
        )
        for number in range(count)
    ]
    guesses = {question.key: draw(texts) for question in questions}
    numbers = {question.key: draw(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])) for question in questions}
    return questions, guesses, numbers


def plain(text):
    kept = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    # An article is a run of word characters; any other sign bounds it.
    words, run = [], ""
    for sign in kept + " ":
        if sign.isalnum() or sign == "_":
            run += sign
        else:
            words.append(" " if run in ("a", "an", "the") else run)
            words.append(sign)
            run = ""
    return "".join(words).split()


def f1(guess, right):
    left, same = list(right), 0
    for word in guess:
        if word in left:
            left.remove(word)
            same += 1
    if not same:
        return 0.0
    precision, recall = 1.0 * same / len(guess), 1.0 * same / len(right)
    return (2 * precision * recall) / (precision + recall)


def summed(values):
    total = 0.0
    for value in values:
        total = total + value
    return total


@given(measured(western, answerable=True))
def test_squad_1_1(case):
    questions, guesses, _ = case
    del guesses["0"]
    exact, overlap = 0.0, 0.0
    for question in questions:
        if question.key in guesses:
            guess = plain(guesses[question.key])
            exact += max(int(guess == plain(answer.text)) for answer in question.answers)
            overlap += max(f1(guess, plain(answer.text)) for answer in question.answers)
    assert squad(questions, guesses) == {
        "exact_match": 100.0 * exact / len(questions),
        "f1": 100.0 * overlap / len(questions),
    }


@given(measured(western), st.sampled_from([0.0, 0.25, 0.6, 1.0]))
def test_squad_2_0(case, threshold):
    questions, guesses, numbers = case
    raw, kept = {}, {}
    for question in questions:
        rights = [plain(answer.text) for answer in question.answers if plain(answer.text)] or [[]]
        guess = plain(guesses[question.key])
        exact = max(float(guess == right) for right in rights)
        overlap = max(f1(guess, right) if guess and right else float(guess == right) for right in rights)
        raw[question.key] = (exact, overlap)
        nothing = float(not question.answers)
        kept[question.key] = (nothing, nothing) if numbers[question.key] > threshold else (exact, overlap)
    found = squad_v2(questions, guesses, numbers, threshold)
    parts = {
        "": questions,
        "HasAns_": [question for question in questions if question.answers],
        "NoAns_": [question for question in questions if not question.answers],
    }
    for prefix, part in parts.items():
        for place, name in enumerate(("exact", "f1")):
            if part:
                values = [kept[question.key][place] for question in part]
                assert found[f"{prefix}{name}"] == 100.0 * summed(values) / len(part)
            else:
                assert f"{prefix}{name}" not in found
    for place, name in enumerate(("exact", "f1")):
        # The best of all places where answering can stop, in the order of sureness.
        gained = best = float(len(parts["NoAns_"]))
        best_at = 0.0
        for question in sorted(questions, key=lambda question: numbers[question.key]):
            if question.answers:
                gained += raw[question.key][place]
            elif guesses[question.key]:
                gained -= 1
            if gained > best:
                best, best_at = gained, numbers[question.key]
        assert (found[f"best_{name}"], found[f"best_{name}_thresh"]) == (100.0 * best / len(questions), best_at)


@given(measured(chinese, answerable=True))
def test_cmrc_2018_and_drcd(case):
    questions, guesses, _ = case

    def without_signs(text):
        return "".join(sign for sign in text.lower().strip() if sign not in _CMRC_SIGNS)

    def segments(text):
        # Western pieces here are digits, the letter a and ‘: NLTK parts the last from what follows and what precedes.
        cut, run = [], ""
        for sign in without_signs(text) + " ":
            if sign.isascii() and sign.isalnum():
                run += sign
                continue
            cut += [run] if run else []
            run = ""
            cut += [sign] if sign != " " else []
        return cut

    def run_in_both(first, second):
        return max(
            (
                size
                for size in range(1, len(first) + 1)
                for place in range(len(first) - size + 1)
                if any(first[place : place + size] == second[at : at + size] for at in range(len(second)))
            ),
            default=0,
        )

    exact, overlap = 0.0, 0.0
    for question in questions:
        guess = guesses[question.key]
        scores = []
        for answer in question.answers:
            mine, right = segments(guess), segments(answer.text)
            same = run_in_both(mine, right)
            precision, recall = (same / len(mine), same / len(right)) if same else (0.0, 0.0)
            scores.append((2 * precision * recall) / (precision + recall) if same else 0.0)
        overlap += max(scores)
        exact += float(any(without_signs(guess) == without_signs(answer.text) for answer in question.answers))
    em, f1_score = 100.0 * exact / len(questions), 100.0 * overlap / len(questions)
    assert cmrc2018(questions, guesses) == {
        "average": (em + f1_score) * 0.5,
        "f1": f1_score,
        "em": em,
        "total": len(questions),
        "skip": 0,
    }
