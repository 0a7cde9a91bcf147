"""Scores of trivial models on the same examples, to compare a fine-tuned model with.

| task | baselines |
|---|---|
| classification | the most frequent class; logistic regression on TF-IDF of words and word pairs |
| regression | the mean; ridge regression on the same TF-IDF |
| multi-label | the most frequent set of classes |
| tagging | the most frequent tag; the most frequent tag of each word |
| multiple choice | the most frequent place of the right option |

For more than 256 classes complement naive Bayes (Rennie et al. 2003), which only counts, replaces logistic regression.
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from maskwright.core.randomness import Permutation, integer_key
from maskwright.data.scripts import WORD
from maskwright.finetuning.examples import TaggedExample, TextExample, has_labels
from maskwright.finetuning.labeled import Labeled
from maskwright.finetuning.tasks.base import Prediction
from maskwright.finetuning.tasks.multiple_choice import MultipleChoice
from maskwright.finetuning.tasks.tagging import Tagging
from maskwright.finetuning.tasks.texts import Classification, MultiLabel, Regression

Predict = Callable[[Sequence[Any]], Sequence[Any]]
_MOST_EXAMPLES = 50_000
"""Training examples of a TF-IDF model; more cost minutes and hardly change its score."""
_MOST_CLASSES = 256
"""Classes for which logistic regression takes minutes at most."""
_MOST_WEIGHTS = 10_000_000
"""Features x classes of a TF-IDF model, 80 MB; the solver of logistic regression needs 20 times that. Of more features
the most frequent are kept."""
_PREDICTED_AT_ONCE = 1000
"""A Chinese character is a word."""


def baselines_of(labeled: Labeled) -> dict[str, dict[str, Mapping[str, float]]]:
    """Return the metrics of each baseline on "dev" and, if it has labels, on "test"; empty for question answering."""
    return {
        name: {
            part: labeled.task.measure(
                [
                    Prediction(key=example.key, value=value, score=None, details={})
                    for example, value in zip(its.examples, predict(its.examples), strict=True)
                ],
                its.examples,
            )
            for part, its in labeled.parts.items()
            if part != "train" and has_labels(its.examples)
        }
        for name, predict in _baselines(labeled)
    }


def _baselines(labeled: Labeled) -> list[tuple[str, Predict]]:
    task, train = labeled.task, labeled.parts["train"].examples
    match task:
        case Classification():
            return [
                ("majority class", _constant(_most_frequent(example.label for example in train))),
                *_tf_idf(train, num_classes=len({example.label for example in train})),
            ]
        case Regression():
            mean = sum(float(example.label) for example in train) / len(train)
            return [("mean", _constant(mean)), *_tf_idf(train, num_classes=None)]
        case MultiLabel():
            return [("majority set", _constant(_most_frequent(example.label for example in train)))]
        case Tagging():
            return _of_tags(train)
        case MultipleChoice():
            # Questions may have fewer options than that.
            place = _most_frequent(example.label for example in train)
            return [("majority option", lambda given: [min(place, len(each.options) - 1) for each in given])]
    return []


def _most_frequent(values: Any) -> Any:
    return Counter(values).most_common(1)[0][0]


def _constant(value: Any) -> Predict:
    return lambda examples: [value] * len(examples)


def _of_tags(train: Sequence[TaggedExample]) -> list[tuple[str, Predict]]:
    of_word: dict[str, Counter[str]] = {}
    for example in train:
        for word, tag in zip(example.words, example.tags or (), strict=True):
            of_word.setdefault(word, Counter())[tag] += 1
    majority = _most_frequent(tag for example in train for tag in example.tags or ())
    known = {word: counts.most_common(1)[0][0] for word, counts in of_word.items()}
    return [
        ("majority tag", lambda given: [[majority] * len(each.words) for each in given]),
        (
            "most frequent tag of each word",
            lambda given: [[known.get(word, majority) for word in each.words] for each in given],
        ),
    ]


def _tf_idf(train: Sequence[TextExample], *, num_classes: int | None) -> list[tuple[str, Predict]]:
    """Return the baseline with its name; none for a single class, or for texts without words.

    `num_classes` is None for a regression.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.naive_bayes import ComplementNB
    from sklearn.pipeline import make_pipeline

    def texts(examples: Sequence[TextExample]) -> list[str]:
        return [" ".join(example.texts) for example in examples]

    order = Permutation(len(train), integer_key(0, "baseline examples"))
    chosen = [train[number] for number in order(np.arange(min(len(train), _MOST_EXAMPLES))).tolist()]
    if len({example.label for example in chosen}) < 2 or not any(re.search(WORD, text) for text in texts(chosen)):
        return []
    if num_classes is None:
        name, model = "ridge regression", Ridge()
    elif num_classes <= _MOST_CLASSES:
        name, model = "logistic regression", LogisticRegression(max_iter=1000)
    else:
        name, model = "complement naive Bayes", ComplementNB()
    most = _MOST_WEIGHTS // (num_classes or 1)
    pipeline = make_pipeline(
        TfidfVectorizer(token_pattern=WORD, ngram_range=(1, 2), sublinear_tf=True, max_features=most), model
    )
    with warnings.catch_warnings():  # `checks.data_warnings` doubts the labels in plainer words.
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        pipeline.fit(texts(chosen), [example.label for example in chosen])

    def predict(examples: Sequence[TextExample]) -> list[Any]:
        starts = range(0, len(examples), _PREDICTED_AT_ONCE)  # Examples x classes scores are computed.
        parts = [pipeline.predict(texts(examples[start : start + _PREDICTED_AT_ONCE])) for start in starts]
        return [value for part in parts for value in part.tolist()]

    return [(f"TF-IDF + {name}", predict)]
