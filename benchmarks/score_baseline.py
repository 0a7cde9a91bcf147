"""What is scored by saying the same of every example: the class, tag or option seen most in training, the mean."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from maskwright.finetuning.benchmarks import Split
from maskwright.finetuning.examples import TaggedExample
from maskwright.finetuning.labelled import LabelledRequest, read_labelled
from maskwright.finetuning.tasks.base import Prediction
from maskwright.training.reporting import Silent


def blind_scores(task: str, files: Mapping[Split, Sequence[Path]]) -> dict[str, float] | None:
    """Score the most frequent label of the training examples (the mean of numbers) on the scored ones.

    Args:
        task: The benchmark.
        files: Files by part; the test examples are scored, without any the development examples.

    Returns:
        The task's metrics; None for answers, which no two questions share.
    """
    request = LabelledRequest.of(task=task, files=files, columns={})
    if request.kind == "question_answering":
        return None
    labelled = read_labelled(request, {}, Silent())
    scored = (labelled.test or labelled.dev).examples
    said = _most_frequent(labelled.train.examples, labelled.task.kind)
    predictions = [
        Prediction(
            key=example.key,
            value=[said] * len(example.words) if isinstance(example, TaggedExample) else said,
            score=None,
            details={},
        )
        for example in scored
    ]
    return labelled.task.measure(predictions, scored)


def _most_frequent(examples: Sequence[Any], kind: str) -> Any:
    if kind == "regression":
        return statistics.fmean(float(example.label) for example in examples)
    labels = (example.tags if kind == "tagging" else (example.label,) for example in examples)
    counts = Counter(label for its in labels for label in its)
    return max(counts, key=lambda label: (counts[label], str(label)))
