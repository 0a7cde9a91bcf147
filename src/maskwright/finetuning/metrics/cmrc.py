"""Exact match and F1 of answers as the script of CMRC 2018 counts them, in percent; DRCD is measured by it as well.

Cui et al. 2019 (section 3.1); ymcui/cmrc2018, squad-style-data/cmrc2018_evaluate.py. DRCD (Shao et al. 2018) was
published without a script; the published scores of Chinese systems on it are this script's
(ymcui/Chinese-ELECTRA, cmrc2018_drcd_evaluate.py, the same rules).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import QuestionExample
from maskwright.finetuning.metrics.squad import check_some, percent
from maskwright.finetuning.metrics.western_words import western_words

# The script's list, gaps included: "‘", a single "…" and most ASCII punctuation stay.
_PUNCTUATION = "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』"
_WITHOUT_PUNCTUATION = str.maketrans("", "", _PUNCTUATION)
_PIECES = re.compile(r"[\u4e00-\u9fa5]|[^\u4e00-\u9fa5]+")


def cmrc2018(examples: Sequence[QuestionExample], predictions: Mapping[str, str]) -> dict[str, float]:
    """Score answers as for CMRC 2018: a question counts its best right answer, one without a prediction counts 0.

    Args:
        examples: All questions, each with its right answers, in the order of the file.
        predictions: Answers by the questions' keys.

    Returns:
        "average" of the next two, "f1", "em", in percent, and how many questions there are ("total") and are without a
        prediction ("skip"). The script prints them in capitals, the first three with three decimals.

    Raises:
        DataError: If there are no questions, or one has no right answer.
    """
    check_some(examples)
    exact, f1 = [], []
    for example in examples:
        if not example.answers:
            raise DataError(f"question {example.key!r} has no right answer")
        guess = predictions.get(example.key)
        if guess is not None:
            right = [answer.text for answer in example.answers]
            exact.append(float(any(_normal(guess) == _normal(text) for text in right)))
            f1.append(max(_overlap(guess, text) for text in right))
    em_score, f1_score = percent(exact, len(examples)), percent(f1, len(examples))
    return {
        "average": (em_score + f1_score) * 0.5,
        "f1": f1_score,
        "em": em_score,
        "total": len(examples),
        "skip": len(examples) - len(exact),
    }


def _normal(text: str) -> str:
    # Spaces at the ends go before punctuation does: one beside it stays.
    return text.lower().strip().translate(_WITHOUT_PUNCTUATION)


@lru_cache(maxsize=1 << 16)
def _segments(text: str) -> tuple[str, ...]:
    # Chinese characters one by one, words of everything else.
    return tuple(_cut(_normal(text)))


def _cut(text: str) -> Iterator[str]:
    for piece in _PIECES.findall(text):
        if "\u4e00" <= piece[0] <= "\u9fa5":
            yield piece
        else:
            yield from western_words(piece)


def _overlap(guess: str, right: str) -> float:
    guessed, wanted = _segments(guess), _segments(right)
    same = _longest_common_run(wanted, guessed)
    if same == 0:
        return 0.0
    precision, recall = same / len(guessed), same / len(wanted)
    return (2 * precision * recall) / (precision + recall)


def _longest_common_run(first: Sequence[str], second: Sequence[str]) -> int:
    # Of segments that follow each other without a gap, unlike the usual longest common subsequence.
    longest = 0
    ending = [0] * (len(second) + 1)  # the run that ends at each segment of the second
    for segment in first:
        before = 0
        for place, other in enumerate(second, start=1):
            before, ending[place] = ending[place], before + 1 if segment == other else 0
            longest = max(longest, ending[place])
    return longest
