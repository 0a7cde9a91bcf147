"""Exact match and F1 of answers as SQuAD's own scripts count them, to the last digit, in percent.

Rajpurkar et al. 2016 (section 6.1) and 2018; evaluate-v1.1.py and evaluate-v2.0.py of rajpurkar/SQuAD-explorer. Sums
are taken one after the other in the order of the file, as there: another order changes the last digits (and so does
Python 3.12's `sum`, which rounds less).
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import QuestionExample

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad(examples: Sequence[QuestionExample], predictions: Mapping[str, str]) -> dict[str, float]:
    """Score answers as for SQuAD 1.1: a question counts its best right answer, one without a prediction counts 0.

    Args:
        examples: All questions, each with its right answers, in the order of the file.
        predictions: Answers by the questions' keys.

    Returns:
        "exact_match" and "f1", in percent.

    Raises:
        DataError: If there are no questions, or one has no right answer.
    """
    check_some(examples)
    exact, f1 = [], []
    for example in examples:
        if not example.answers:
            raise DataError(f"question {example.key!r} has no right answer", todo='Measure such files as "squad_v2".')
        guess = predictions.get(example.key)
        if guess is not None:
            exact.append(max(float(_normal(guess) == _normal(answer.text)) for answer in example.answers))
            f1.append(max(_overlap(guess, answer.text) for answer in example.answers))
    return {"exact_match": percent(exact, len(examples)), "f1": percent(f1, len(examples))}


def squad_v2(
    examples: Sequence[QuestionExample],
    predictions: Mapping[str, str],
    no_answer: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """Score answers as for SQuAD 2.0, where "" is the right answer to a question that the text does not answer.

    Args:
        examples: All questions in the order of the file; those without right answers are unanswerable.
        predictions: Answers by the questions' keys, one for each.
        no_answer: How sure the model is, on any scale, that there is no answer, by the questions' keys. It takes
            answers back, and adds the best thresholds.
        threshold: The answer to a question whose number is greater is taken back. 1 is the script's default.

    Returns:
        In percent, by the script's names: "exact", "f1", and "total" (a count); the same with "HasAns_" and "NoAns_"
        for the questions with and without answers, where there are some; and, with `no_answer`, what
        `best_threshold` finds: "best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh".

    Raises:
        DataError: If there are no questions, or one has no prediction, or no number in `no_answer`.
    """
    raw = score_questions(examples, predictions)
    scores = raw
    if no_answer is not None:
        _check_all(raw, no_answer)
        scores = [score.taken_back() if no_answer[score.key] > threshold else score for score in raw]
    parts = {
        "": scores,
        "HasAns_": [score for score in scores if score.answerable],
        "NoAns_": [score for score in scores if not score.answerable],
    }
    results: dict[str, float] = {}
    for prefix, part in parts.items():
        if part:
            results[f"{prefix}exact"] = percent((score.exact for score in part), len(part))
            results[f"{prefix}f1"] = percent((score.f1 for score in part), len(part))
            results[f"{prefix}total"] = len(part)
    if no_answer is not None:
        for name in ("exact", "f1"):
            best = best_threshold(raw, no_answer, name)
            results |= {f"best_{name}": best.score, f"best_{name}_thresh": best.threshold}
    return results


@dataclass(frozen=True, slots=True)
class QuestionScore:
    """How good the answer to one question is.

    Attributes:
        key: The question's.
        answerable: Whether it has a right answer other than "".
        answered: Whether the prediction is other than "".
        exact: 1 where the answer is a right one, else 0.
        f1: In [0, 1].
    """

    key: str
    answerable: bool
    answered: bool
    exact: float
    f1: float

    def taken_back(self) -> "QuestionScore":
        """Return the score of "" instead."""
        right = float(not self.answerable)
        return replace(self, answered=False, exact=right, f1=right)


def score_questions(examples: Sequence[QuestionExample], predictions: Mapping[str, str]) -> list[QuestionScore]:
    """Score the answer to each question by SQuAD 2.0's rules.

    Right answers of which nothing is left without punctuation and articles do not count, as in the script.

    Raises:
        DataError: If there are no questions, or one has no prediction.
    """
    check_some(examples)
    scores = []
    for example in examples:
        if example.key not in predictions:
            raise DataError(f"question {example.key!r} has no prediction")
        guess = predictions[example.key]
        right = [answer.text for answer in example.answers if _normal(answer.text)] or [""]
        scores.append(
            QuestionScore(
                key=example.key,
                answerable=bool(example.answers),
                answered=bool(guess),
                exact=max(float(_normal(guess) == _normal(text)) for text in right),
                f1=max(_overlap_or_nothing(guess, text) for text in right),
            )
        )
    return scores


@dataclass(frozen=True, slots=True)
class BestThreshold:
    """The threshold that gives the best score.

    Attributes:
        score: That score, in percent.
        threshold: Questions whose number is greater are answered by "".
        answers: How many of the questions keep their answers, unanswerable and unanswered ones included.
    """

    score: float
    threshold: float
    answers: int


def best_threshold(
    scores: Sequence[QuestionScore], no_answer: Mapping[str, float], measure: Literal["exact", "f1"]
) -> BestThreshold:
    """Find the threshold that gives the best score, as the script does.

    It begins with no question answered and lets them be answered one by one, the surest first. Two things are the
    script's: where no answer at all is best it says 0, whatever the scale; and of questions with the same number it may
    stop between, in the order of `no_answer`.

    Args:
        scores: Of all questions.
        no_answer: By the questions' keys; others in it are passed over.
        measure: Which score.

    Raises:
        DataError: If a question has no number.
    """
    _check_all(scores, no_answer)
    by_key = {score.key: score for score in scores}
    current = best = float(sum(not score.answerable for score in scores))
    threshold, kept = 0.0, 0
    surest_first = sorted((key for key in no_answer if key in by_key), key=lambda key: no_answer[key])
    for number, key in enumerate(surest_first, start=1):
        score = by_key[key]
        if score.answerable:
            current += getattr(score, measure)
        elif score.answered:
            current -= 1
        if current > best:
            best, threshold, kept = current, no_answer[key], number
    return BestThreshold(100.0 * best / len(scores), threshold, kept)


def check_some(examples: Sequence[QuestionExample]) -> None:
    """Refuse to measure nothing.

    Raises:
        DataError: If there are no questions.
    """
    if not examples:
        raise DataError("there are no questions to measure", todo="Check the file.")


def percent(scores: Iterable[float], count: int) -> float:
    """Return the mean in percent, rounded as the scripts round: summed in order, then 100 times, then divided."""
    total = 0.0
    for score in scores:
        total += score
    return 100.0 * total / count


def _check_all(scores: Sequence[QuestionScore], no_answer: Mapping[str, float]) -> None:
    for score in scores:
        if score.key not in no_answer:
            raise DataError(f"question {score.key!r} has no number that says how sure the model is of no answer")


@lru_cache(maxsize=1 << 16)
def _normal(text: str) -> str:
    # Lower case, without ASCII punctuation, English articles and superfluous space.
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def _overlap(guess: str, right: str) -> float:
    guessed, wanted = _normal(guess).split(), _normal(right).split()
    same = sum((Counter(guessed) & Counter(wanted)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(guessed), same / len(wanted)
    return (2 * precision * recall) / (precision + recall)


def _overlap_or_nothing(guess: str, right: str) -> float:
    if not _normal(guess) or not _normal(right):
        return float(_normal(guess) == _normal(right))
    return _overlap(guess, right)
