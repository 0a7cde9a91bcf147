"""Scores of simple models on the same examples, to compare a fine-tuned model with.

| task | baselines |
|---|---|
| classification | the most frequent class; logistic regression on TF-IDF of uni- and bigrams, and on frozen vectors |
| regression | the mean; ridge regression on the same TF-IDF, and on frozen vectors; of pairs, their cosine by TF-IDF |
| reranking | the cosine similarity of query and document, by TF-IDF and by frozen vectors |
| embedding of scored pairs | the vectors before training; the cosine similarity of both texts by TF-IDF |
| multi-label | the most frequent set of classes; balanced logistic regression of each class on both |
| tagging | the most frequent tag; the most frequent tag of each word |
| multiple choice | the most frequent index of the right option |

Frozen vectors are the pooled vectors of the model before fine-tuning. For more than 256 classes logistic regression is
replaced by complement naive Bayes (Rennie et al. 2003), which only counts, and by a ridge classifier.
"""

import functools
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.checkpoints.checkpoint import Checkpoint
from maskwright.core.randomness import Permutation, integer_key
from maskwright.data.scripts import WORD
from maskwright.finetuning.examples import ExampleFile, TaggedExample, TextExample, has_labels
from maskwright.finetuning.labeled import LabeledData
from maskwright.finetuning.metrics.scores import number_scores
from maskwright.finetuning.tasks.base import Prediction
from maskwright.finetuning.tasks.multiple_choice import MultipleChoice
from maskwright.finetuning.tasks.reranking import Reranking
from maskwright.finetuning.tasks.tagging import Tagging
from maskwright.finetuning.tasks.texts import Classification, MultiLabel, Regression
from maskwright.inference.long_texts import TruncationWarning
from maskwright.inference.model import Model, inference_model
from maskwright.reporting.reporter import Progress, no_progress
from maskwright.training.ranks.device import Machine

Predict = Callable[[Sequence[Any]], Sequence[Any]]
Embed = Callable[[Sequence[TextExample]], NDArray[np.float32]]
"""Frozen vectors of examples, shape (n, D)."""
FROZEN = "frozen vectors"
"""Begins the names of the baselines on them."""
_MOST_EXAMPLES = 50_000
"""Training examples of a TF-IDF model; more cost minutes and hardly change its score."""
_MOST_EMBEDDED = 10_000
"""Training examples that are embedded, so that the baseline takes a small part of the time of training."""
_MOST_CLASSES = 256
"""Classes for which logistic regression takes minutes at most."""
_MOST_WEIGHTS = 10_000_000
"""Features x classes of a TF-IDF model, 80 MB; the solver of logistic regression needs 20 times that. Of more features
the most frequent are kept."""
_PREDICTED_AT_ONCE = 1000
"""A Chinese character is a word."""


def frozen_vectors(existing: Checkpoint, max_length: int, machine: Machine, progress: Progress = no_progress) -> Embed:
    """Return the embedding function of the untouched model, by mean pooling or by its sentence-transformers modules.

    A pair's vectors u and v become [u, v, |u - v|, u * v] (Conneau et al. 2017, InferSent, figure 1). Each text is
    truncated to `max_length` tokens.
    """

    @functools.cache
    def build() -> Model:  # Not before it is needed: many tasks have no baseline on vectors.
        model = inference_model(existing, machine.device, machine.precision)
        model.max_length = max_length
        return model

    def embed(examples: Sequence[TextExample]) -> NDArray[np.float32]:
        model = build()
        columns = list(zip(*(example.texts for example in examples), strict=True))
        with warnings.catch_warnings():  # Truncated examples are counted in the results.
            warnings.simplefilter("ignore", TruncationWarning)
            vectors = [
                model.embed(column, pooling=model.modules.pooling, normalize=False, progress=progress)
                for column in columns
            ]
        if len(vectors) == 2:
            first, second = vectors
            vectors += [np.abs(first - second), first * second]
        return np.concatenate(vectors, axis=1)

    return embed


def measure_baselines(
    labeled: LabeledData, embed: Embed | None = None
) -> Iterator[tuple[str, Mapping[str, Mapping[str, float]]]]:
    """Yield each baseline's name and metrics on "dev" and, if it has labels, on "test"; none for question answering.

    Without `embed` there are no baselines on frozen vectors.
    """
    for name, predict in _baselines(labeled, embed):
        metrics = {
            part: labeled.task.measure(
                [
                    Prediction(key=example.key, value=value, score=None, details={})
                    for example, value in zip(file.examples, predict(file.examples), strict=True)
                ],
                file.examples,
            )
            for part, file in labeled.parts.items()
            if part != "train" and has_labels(file.examples)
        }
        yield name, metrics


def word_overlap(parts: Mapping[str, ExampleFile[TextExample]]) -> dict[str, dict[str, float]]:
    """Return the correlations of scores with the cosine of TF-IDF of both texts, by part; none for texts without words.

    The metrics have the names that sentence-transformers gives those of vectors.
    """
    ranking = next(_of_rankings(parts["train"].examples, embed=None), None)
    if ranking is None:
        return {}
    _, similarities = ranking
    overlap = dict[str, dict[str, float]]()
    for part, file in parts.items():
        if part != "train":
            scores = number_scores([each.label for each in file.examples], similarities(file.examples))
            overlap[part] = {f"{name}_cosine": scores[name] for name in ("spearman", "pearson")}
    return overlap


def _baselines(labeled: LabeledData, embed: Embed | None) -> Iterator[tuple[str, Predict]]:
    task, train = labeled.task, labeled.parts["train"].examples
    match task:
        case Classification():
            yield "majority class", _constant(_most_frequent(example.label for example in train))
            yield from _of_texts(train, embed, num_classes=len({example.label for example in train}))
        case Regression():
            yield "mean", _constant(sum(float(example.label) for example in train) / len(train))
            yield from _of_texts(train, embed, num_classes=None)
            if all(len(example.texts) == 2 for example in train):
                for name, similarities in _of_rankings(train, embed=None):
                    yield name, _on_a_line(train, similarities)
        case Reranking():
            yield from _of_rankings(train, embed)
        case MultiLabel():
            yield "majority set", _constant(_most_frequent(example.label for example in train))
            if len(task.labels) <= _MOST_CLASSES:
                yield from _of_texts(train, embed, num_classes=len(task.labels))
        case Tagging():
            yield from _of_tags(train)
        case MultipleChoice():
            # Questions may have fewer options than that.
            index = _most_frequent(example.label for example in train)
            yield "majority option", lambda examples: [min(index, len(each.options) - 1) for each in examples]


def _of_rankings(train: Sequence[TextExample], embed: Embed | None) -> Iterator[tuple[str, Predict]]:
    """Yield the rankings by similarity of query and document, which is what a reranker has to improve on."""
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.pipeline import make_pipeline

    if any(re.search(WORD, text) for text in _joined(train)):
        # Hashed words need no vocabulary: a word that is not in the training texts counts as the rarest.
        counts = HashingVectorizer(token_pattern=WORD, norm=None, alternate_sign=False)
        tf_idf = make_pipeline(counts, TfidfTransformer(sublinear_tf=True)).fit(_joined(_sample(train, _MOST_EXAMPLES)))

        def overlaps(examples: Sequence[TextExample]) -> list[float]:
            queries, documents = (
                tf_idf.transform(column) for column in zip(*(each.texts for each in examples), strict=True)
            )
            similarities: list[float] = np.asarray(queries.multiply(documents).sum(axis=1)).ravel().tolist()
            return similarities

        yield "TF-IDF cosine", overlaps
    if embed is not None:

        def cosines(examples: Sequence[TextExample]) -> list[float]:
            queries, documents, *_ = np.split(embed(examples), 4, axis=1)
            norms = np.linalg.norm(queries, axis=1) * np.linalg.norm(documents, axis=1)
            similarities: list[float] = ((queries * documents).sum(axis=1) / norms).tolist()
            return similarities

        yield f"{FROZEN} cosine", cosines


def _on_a_line(train: Sequence[TextExample], similarities: Predict) -> Predict:
    """Return the least-squares line from similarities to labels."""
    from sklearn.linear_model import LinearRegression

    return _fitted(LinearRegression(), train, lambda examples: np.array(similarities(examples))[:, np.newaxis])


def _most_frequent(values: Any) -> Any:
    return Counter(values).most_common(1)[0][0]


def _constant(value: Any) -> Predict:
    return lambda examples: [value] * len(examples)


def _of_tags(train: Sequence[TaggedExample]) -> Iterator[tuple[str, Predict]]:
    of_word: dict[str, Counter[str]] = {}
    for example in train:
        for word, tag in zip(example.words, example.tags or (), strict=True):
            of_word.setdefault(word, Counter())[tag] += 1
    majority = _most_frequent(tag for example in train for tag in example.tags or ())
    known = {word: counts.most_common(1)[0][0] for word, counts in of_word.items()}
    yield "majority tag", lambda examples: [[majority] * len(each.words) for each in examples]
    yield (
        "most frequent tag of each word",
        lambda examples: [[known.get(word, majority) for word in each.words] for each in examples],
    )


def _of_texts(
    train: Sequence[TextExample], embed: Embed | None, *, num_classes: int | None
) -> Iterator[tuple[str, Predict]]:
    """Yield the baselines on TF-IDF, unless the texts have no words, and on frozen vectors; none on a single class.

    `num_classes` is None for a regression.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, RidgeCV
    from sklearn.naive_bayes import ComplementNB
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    sample = _sample(train, _MOST_EXAMPLES)
    if len({example.label for example in sample}) < 2:
        return
    if any(re.search(WORD, text) for text in _joined(sample)):
        if num_classes is None:
            name, model = "ridge regression", Ridge()
        elif num_classes <= _MOST_CLASSES:
            name, model = "logistic regression", LogisticRegression(max_iter=1000)
        else:
            name, model = "complement naive Bayes", ComplementNB()
        most = _MOST_WEIGHTS // (num_classes or 1)
        tf_idf = TfidfVectorizer(token_pattern=WORD, ngram_range=(1, 2), sublinear_tf=True, max_features=most)
        yield f"TF-IDF + {name}", _fitted(make_pipeline(tf_idf, model), sample, _joined)
    sample = _sample(train, _MOST_EMBEDDED)
    if embed is not None and len({example.label for example in sample}) > 1:
        if num_classes is None:
            name, model = "ridge regression", RidgeCV(alphas=np.logspace(0, 5, 11))
        elif num_classes <= _MOST_CLASSES:
            # C: the best, or within .015 of it, in seven settings (LOG.md, "logistic regression on frozen vectors").
            name, model = "logistic regression", LogisticRegression(C=0.01, max_iter=1000)
        else:
            name, model = "ridge classifier", RidgeClassifier()
        yield f"{FROZEN} + {name}", _fitted(make_pipeline(StandardScaler(), model), sample, embed)


def _sample(train: Sequence[TextExample], most: int) -> list[TextExample]:
    order = Permutation(len(train), integer_key(0, "baseline examples"))
    return [train[number] for number in order(np.arange(min(len(train), most))).tolist()]


def _joined(examples: Sequence[TextExample]) -> list[str]:
    return [" ".join(example.texts) for example in examples]


def _fitted(pipeline: Any, train: Sequence[TextExample], features: Callable[[Sequence[TextExample]], Any]) -> Predict:
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import MultiLabelBinarizer

    labels: Any = [example.label for example in train]
    sets: Any = None
    if isinstance(labels[0], tuple):  # Multi-label.
        # OneVsRestClassifier takes its threshold from the first class, which must have both kinds of examples.
        counts = Counter(each for label in labels for each in label)
        sets = MultiLabelBinarizer(classes=sorted(counts, key=lambda each: (counts[each], each)))
        labels = sets.fit_transform(labels)
        name, model = pipeline.steps[-1]
        # Without weights a class of few examples is never predicted (LOG.md, "baselines of multi-label").
        pipeline.set_params(**{name: OneVsRestClassifier(model.set_params(class_weight="balanced"))})
    with warnings.catch_warnings():  # `labeled.data_warnings` reports it.
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        warnings.filterwarnings("ignore", ".* is present in all training examples", UserWarning)
        pipeline.fit(features(train), labels)

    def predict(examples: Sequence[TextExample]) -> list[Any]:
        starts = range(0, len(examples), _PREDICTED_AT_ONCE)  # Examples x classes scores are computed.
        parts = [pipeline.predict(features(examples[start : start + _PREDICTED_AT_ONCE])) for start in starts]
        if sets is not None:  # Of a single class the predictions are a vector.
            parts = [sets.inverse_transform(part.reshape(len(part), -1)) for part in parts]
        return [value for part in parts for value in (part.tolist() if sets is None else part)]

    return predict
