"""Answers against the right ones, by the published scripts; and from when on a question has no answer."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import QuestionExample
from maskwright.finetuning.metrics import BestThreshold, best_threshold, cmrc2018, score_questions, squad, squad_v2
from maskwright.finetuning.tasks.base import Prediction

AnswerMetric = Literal["squad", "squad_v2", "cmrc", "drcd"]
"""By whose script answers are scored: SQuAD 1.1's; SQuAD 2.0's, of which questions may have no answer; CMRC 2018's; or
DRCD's, which is that of CMRC 2018."""


def published_scores(
    metric: AnswerMetric, predictions: Sequence[Prediction], examples: Sequence[QuestionExample]
) -> dict[str, float]:
    """Score answers as the published script does (see `QuestionAnswering.measure`).

    Args:
        metric: By whose script.
        predictions: One an example; for "squad_v2" with their details.
        examples: With answers, or without one where the script knows that.
    """
    numbered = _numbered(examples)
    told = {str(number): prediction.value for number, prediction in enumerate(predictions)}
    if metric in ("cmrc", "drcd"):
        scores = cmrc2018(numbered, told)
        return {"f1": scores["f1"], "exact_match": scores["em"], "average": scores["average"]}
    if metric == "squad":
        scores = squad(numbered, told)
        return {"f1": scores["f1"], "exact_match": scores["exact_match"]}
    scores = squad_v2(numbered, told)
    best = {name: _best(predictions, examples, name) for name in ("f1", "exact")}
    return {
        "f1": scores["f1"],
        "exact_match": scores["exact"],
        **{name: score for name, score in scores.items() if name.endswith(("s_exact", "s_f1"))},
        **{f"best_{name}": found.score for name, found in best.items()},
        **{f"best_{name}_thresh": found.threshold for name, found in best.items()},
    }


def tune_null_threshold(predictions: Sequence[Prediction], examples: Sequence[QuestionExample]) -> float:
    """Return the `null_threshold` that gives these predictions the best F1 (Devlin et al. 2019, 4.3).

    Args:
        predictions: By a task whose questions may have no answer, with any threshold.
        examples: The same examples with their answers: development ones, never those that are reported as test.

    Raises:
        DataError: If there are no examples, or predictions do not tell how sure they are of no answer.
    """
    best = _best(predictions, examples, "f1")
    if best.answers:
        return best.threshold
    # Nothing is best answered: less than the least.
    return math.nextafter(min(prediction.details["no_answer_score"] for prediction in predictions), -math.inf)


def _best(
    predictions: Sequence[Prediction], examples: Sequence[QuestionExample], measure: Literal["exact", "f1"]
) -> BestThreshold:
    if any("no_answer_score" not in prediction.details for prediction in predictions):
        raise DataError(
            "predictions do not tell how sure they are of no answer", todo='Predict with the metric "squad_v2".'
        )
    # What would be told if the threshold did not take it back.
    answers = [prediction.details["answers"] for prediction in predictions]
    told = {str(number): found[0]["text"] if found else "" for number, found in enumerate(answers)}
    sure = {str(number): prediction.details["no_answer_score"] for number, prediction in enumerate(predictions)}
    return best_threshold(score_questions(_numbered(examples), told), sure, measure)


def _numbered(examples: Sequence[QuestionExample]) -> list[QuestionExample]:
    # Scripts find answers by keys, and a user's file may hold one twice.
    return [replace(example, key=str(number)) for number, example in enumerate(examples)]
