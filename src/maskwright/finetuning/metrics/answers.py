"""Exact match and F1 of answers, in percent, as the official scripts of SQuAD and CMRC 2018 compute them.

SQuAD: Rajpurkar et al. 2016 (section 6.1) and 2018; evaluate-v1.1.py and evaluate-v2.0.py of
rajpurkar/SQuAD-explorer. Sums are taken one after the other in the order of the file, as there: another order changes
the last digits (and so does Python 3.12's `sum`, which rounds less).

CMRC 2018: Cui et al. 2019 (section 3.1); ymcui/cmrc2018, squad-style-data/cmrc2018_evaluate.py. DRCD (Shao et al.
2018) was published without a script; the published scores of Chinese systems on it are this script's
(ymcui/Chinese-ELECTRA, cmrc2018_drcd_evaluate.py, the same rules).
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)

References = Sequence[Sequence[str]]
"""The reference answers to each question, in the order of the file; none for an unanswerable one (SQuAD 2.0 only)."""


def squad(references: References, predictions: Sequence[str]) -> dict[str, float]:
    """Return "f1" and "exact_match", in percent, as for SQuAD 1.1: each question counts its best reference answer."""
    return _scores_of_best(references, predictions, _squad_normal, _squad_f1)


def cmrc2018(references: References, predictions: Sequence[str]) -> dict[str, float]:
    """Return "f1", "exact_match" and their "average", in percent, as for CMRC 2018 (see `squad`).

    The script prints them in capitals, with three decimals.
    """
    scores = _scores_of_best(references, predictions, _cmrc_normal, _cmrc_f1)
    return {**scores, "average": (scores["exact_match"] + scores["f1"]) * 0.5}


def _scores_of_best(
    references: References, predictions: Sequence[str], normal: Callable[[str], str], f1_of: Callable[[str, str], float]
) -> dict[str, float]:
    pairs = list(zip(references, predictions, strict=True))
    return {
        "f1": _percent([max(f1_of(prediction, text) for text in texts) for texts, prediction in pairs]),
        "exact_match": _percent(
            [max(float(normal(prediction) == normal(text)) for text in texts) for texts, prediction in pairs]
        ),
    }


class QuestionScore(NamedTuple):
    """Score in [0, 1] of the answer to one question, by SQuAD 2.0's rules.

    `answerable`: it has a reference answer other than "". `answered`: the prediction is not "".
    """

    answerable: bool
    answered: bool
    exact: float
    f1: float


def squad_v2(references: References, predictions: Sequence[str]) -> dict[str, float]:
    """Score answers as for SQuAD 2.0, where "" is the reference answer to a question that the text does not answer.

    In percent, "f1" and "exact_match"; and "HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1" of questions with and
    without answers, if there are any.
    """
    scores = score_questions(references, predictions)
    results = {
        "f1": _percent([score.f1 for score in scores]),
        "exact_match": _percent([score.exact for score in scores]),
    }
    for prefix, answerable in (("HasAns", True), ("NoAns", False)):
        if part := [score for score in scores if score.answerable == answerable]:
            results[f"{prefix}_exact"] = _percent([score.exact for score in part])
            results[f"{prefix}_f1"] = _percent([score.f1 for score in part])
    return results


def score_questions(references: References, predictions: Sequence[str]) -> list[QuestionScore]:
    """Score the answer to each question by SQuAD 2.0's rules.

    Right answers of which nothing is left without punctuation and articles do not count, as in the script.
    """
    scores = []
    for texts, prediction in zip(references, predictions, strict=True):
        normal = [text for text in texts if _squad_normal(text)] or [""]
        exact = max(float(_squad_normal(prediction) == _squad_normal(text)) for text in normal)
        f1 = (
            max(_squad_f1(prediction, text) for text in normal)
            if normal != [""] and _squad_normal(prediction)
            else exact
        )
        scores.append(QuestionScore(bool(texts), bool(prediction), exact, f1))
    return scores


class BestThreshold(NamedTuple):
    """The best score in percent, and the threshold that gives it.

    Questions with a greater `no_answer` are answered by ""; `answers` is the number of those that keep their
    predictions, including unanswerable and unanswered ones.
    """

    score: float
    threshold: float
    answers: int


def best_threshold(
    scores: Sequence[QuestionScore], no_answer: Sequence[float], measure: Literal["exact", "f1"]
) -> BestThreshold:
    """Find the threshold that gives the best score, as the script does.

    It starts with no question answered and adds answers in ascending order of `no_answer`, the model's score of each
    question, on any scale, for the absence of an answer. As in the script, the threshold is 0 if no answer at all is
    best, whatever the scale, and of questions with equal `no_answer` only the first may count.
    """
    current = best = float(sum(not score.answerable for score in scores))
    threshold, kept = 0.0, 0
    ascending = sorted(zip(no_answer, scores, strict=True), key=lambda pair: pair[0])
    for number, (value, score) in enumerate(ascending, start=1):
        if score.answerable:
            current += getattr(score, measure)
        elif score.answered:
            current -= 1
        if current > best:
            best, threshold, kept = current, value, number
    return BestThreshold(100.0 * best / len(scores), threshold, kept)


def _percent(scores: Sequence[float]) -> float:
    """Return the mean in percent, rounded as the scripts round: summed in order, then 100 times, then divided."""
    total = 0.0
    for score in scores:
        total += score
    return 100.0 * total / len(scores)


def _f1(same: int, predicted: int, expected: int) -> float:
    if same == 0:
        return 0.0
    precision, recall = same / predicted, same / expected
    return (2 * precision * recall) / (precision + recall)


def _squad_normal(text: str) -> str:
    # Lower case, without ASCII punctuation, English articles and superfluous space.
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_ASCII_PUNCTUATION)).split())


def _squad_f1(prediction: str, reference: str) -> float:
    predicted, expected = _squad_normal(prediction).split(), _squad_normal(reference).split()
    return _f1((Counter(predicted) & Counter(expected)).total(), len(predicted), len(expected))


# The script's list, gaps included: "‘", a single "…" and most ASCII punctuation stay.
_CMRC_PUNCTUATION = "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』"
_WITHOUT_CMRC_PUNCTUATION = str.maketrans("", "", _CMRC_PUNCTUATION)
_PIECES = re.compile(r"[\u4e00-\u9fa5]|[^\u4e00-\u9fa5]+")


def _cmrc_normal(text: str) -> str:
    # Spaces at the ends are removed before punctuation is: one beside punctuation stays.
    return text.lower().strip().translate(_WITHOUT_CMRC_PUNCTUATION)


def _cmrc_segments(text: str) -> list[str]:
    # Chinese characters one by one, words of everything else.
    pieces = _PIECES.findall(_cmrc_normal(text))
    return [
        segment
        for piece in pieces
        for segment in ([piece] if "\u4e00" <= piece[0] <= "\u9fa5" else western_words(piece))
    ]


def _cmrc_f1(prediction: str, reference: str) -> float:
    predicted, expected = _cmrc_segments(prediction), _cmrc_segments(reference)
    # Segments that follow each other without a gap, unlike the usual longest common subsequence.
    longest_run = SequenceMatcher(None, expected, predicted, autojunk=False).find_longest_match().size
    return _f1(longest_run, len(predicted), len(expected))


# DEVIATION: the script of CMRC 2018 calls NLTK's `word_tokenize`, which first cuts the text into sentences by a trained
# model (punkt) that is not part of the library; here such a text is one sentence. That can matter where a full stop is
# before a space and is not the last character: in 9 of the 1,108 such texts in the answers of CMRC's dev and trial
# files ("st. felix", "terry a. gates"), none of which ends a sentence.
def western_words(text: str) -> list[str]:
    from nltk.tokenize import NLTKWordTokenizer

    return list(NLTKWordTokenizer().tokenize(text))
