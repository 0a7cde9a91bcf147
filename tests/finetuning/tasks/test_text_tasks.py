"""Classification, multi-label classification and regression: sequences, labels, losses, predictions, metrics."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.errors import DataError, MaskwrightError
from maskwright.data.tokenizers.stream_encoder import StreamEncoder
from maskwright.finetuning.examples import TextExample
from maskwright.finetuning.features import FeatureCollator, Layout, cut_pairs
from maskwright.finetuning.tasks import make_task, task_from_json
from maskwright.finetuning.tasks.multiple_choice import MultipleChoice
from maskwright.finetuning.tasks.question_answering import QuestionAnswering
from maskwright.finetuning.tasks.texts import Classification, MultiLabel, Regression

CPU = torch.device("cpu")
TEXTS = (
    "The quick brown fox doesn't jump.",
    "",
    "   ",
    "北京大学在 2019 年 visited Größe",
    " leading and trailing ",
    "emoji 😀 done [SEP] not special",
    "a\tb\x08c\u00a0d",
    "What did the woman say about the price of the tour? It sounds reasonable.",
)


def example(texts, label=None, key="1"):
    return TextExample(key=key, texts=tuple(texts), label=label)


def labeled(labels):
    return [example([f"text {number}"], label, key=f"line {number}") for number, label in enumerate(labels)]


def scored(task, examples, scores, tokenizer):
    """Decode scores, a row per example."""
    features = task.features(examples, Layout(tokenizer, 20, True), training=False)
    return list(task.predictions(scores, features, examples))


def a_batch(task, examples, tokenizer):
    features = task.features(examples, Layout(tokenizer, 20, True), training=True)
    return FeatureCollator(features, tokens=10_000, device=CPU).batch(np.arange(features.num_units))


def loss_of(task, scores, batch):
    return task.loss(torch.tensor(scores), batch.labels, batch)


# Sequences.


def sequences_of(features):
    return [
        (features.ids[begin:end].tolist(), features.segment_ids[begin:end].tolist())
        for begin, end in itertools.pairwise(features.cu_seqlens.tolist())
    ]


def encode_with(tokenizer, examples, **options):
    """Call a tokenizer of transformers with lists, as datasets do: a lone empty second text would be no text to it."""
    called = [tokenizer(*([text] for text in each.texts), return_token_type_ids=True, **options) for each in examples]
    return [{name: values[0] for name, values in each.items()} for each in called]


def made(examples, tokenizer, max_length=512, segments=True):
    task = Classification(labels=("0", "1"))
    return task.features(examples, Layout(tokenizer, max_length, segments), training=False)


def test_single_texts_and_pairs_equal_transformers(kind, tokenizers, auto_tokenizers):
    examples = [example([text]) for text in TEXTS] + [example([a, b]) for a in TEXTS for b in TEXTS]
    features = made(examples, tokenizers[kind], segments=kind != "byte_bpe")
    expected = encode_with(auto_tokenizers[kind], examples)
    assert sequences_of(features) == [(each["input_ids"], each["token_type_ids"]) for each in expected]
    assert len(features.truncated) == 0
    assert features.labels is None
    assert features.units.tolist() == features.examples.tolist() == list(range(len(examples)))


def test_truncation_equals_transformers_where_both_texts_leave_an_even_number(kind, tokenizers, auto_tokenizers):
    length = 14 if kind == "byte_bpe" else 13  # 4 or 3 special tokens in a pair
    long = [text for text in TEXTS if len(text) > 12]
    examples = [example([text]) for text in TEXTS] + [example([a, b]) for a in long for b in TEXTS]
    features = made(examples, tokenizers[kind], max_length=length)
    expected = encode_with(auto_tokenizers[kind], examples, truncation="longest_first", max_length=length)
    whole = encode_with(auto_tokenizers[kind], examples)
    assert [ids for ids, _ in sequences_of(features)] == [each["input_ids"] for each in expected]
    assert len(features.truncated) == sum(len(each["input_ids"]) > length for each in whole) > 5


def cut_one_by_one(first, second, most):
    """Drop tokens one by one as BERT's run_classifier.py does."""
    while first + second > most:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=20), st.integers(2, 40))
def test_pairs_are_cut_token_by_token_from_the_longer_text(lengths, most):
    first, second = cut_pairs(*np.array(lengths).T, most)
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [cut_one_by_one(*pair, most) for pair in lengths]


def test_a_length_without_text_tokens_is_refused(tokenizers):
    with pytest.raises(DataError, match=r"sequences of 4 tokens are too short.*at least 5"):
        made([example(["a", "b"])], tokenizers["wordpiece"], max_length=4)
    with pytest.raises(DataError, match=r"sequences of 2 tokens are too short.*at least 3"):
        made([example(["a"])], tokenizers["byte_bpe"], max_length=2)
    assert len(made([example(["a"])], tokenizers["byte_bpe"], max_length=3).ids) == 3


# Windows.


def windowed(examples, tokenizer, max_length):
    task = Classification(labels=("0", "1"))
    return task.features(examples, Layout(tokenizer, max_length, True, windows=True), training=False)


def test_windows_leave_short_texts_and_pairs_as_they_are(kind, tokenizers):
    examples = [example([text]) for text in TEXTS] + [example([a, b]) for a in TEXTS for b in TEXTS]
    plain, windows = (call(examples, tokenizers[kind], 512) for call in (made, windowed))
    assert sequences_of(windows) == sequences_of(plain)
    assert windows.examples.tolist() == plain.examples.tolist()


@pytest.mark.parametrize("long_first", [False, True])
def test_the_longer_text_of_a_pair_is_cut_into_windows(long_first, tokenizers):
    tokenizer = tokenizers["wordpiece"]
    long, short = TEXTS[-1], "the dog"
    features = windowed([example([long, short] if long_first else [short, long]), example([long])], tokenizer, 12)
    long_ids, short_ids = (tokenizer.encode(text).ids.tolist() for text in (long, short))
    expected = []
    for number, most in enumerate((12 - 3 - len(short_ids), 12 - 2)):
        step = most - most // 4
        count = 1 + -(-(len(long_ids) - most) // step)
        parts = [long_ids[start : start + most] for start in range(0, count * step, step)]
        pairs = [[part, short_ids] if long_first else [short_ids, part] for part in parts]
        expected += [(number, pair if number == 0 else [part]) for pair, part in zip(pairs, parts, strict=True)]
    separator = tokenizer.special_tokens.sep
    actual = [
        (number, [list(part) for is_end, part in itertools.groupby(ids[1:], lambda id: id == separator) if not is_end])
        for number, (ids, _) in zip(features.examples.tolist(), sequences_of(features), strict=True)
    ]
    assert actual == expected
    assert len(actual) > 4
    assert not len(features.truncated)


def test_a_short_text_that_does_not_fit_into_half_a_window_is_truncated(tokenizers):
    features = windowed([example([TEXTS[-1]] * 2), example(["the dog"])], tokenizers["wordpiece"], 12)
    assert features.truncated.tolist() == [0]


def test_probabilities_and_numbers_of_windows_are_averaged(tokenizers):
    examples = [example([TEXTS[-1]], key="long"), example(["the dog"], key="short")]
    layout = Layout(tokenizers["wordpiece"], 12, True, windows=True)
    features = Classification(labels=("0", "1")).features(examples, layout, training=False)
    count = int((features.examples == 0).sum())
    assert count > 1
    odds = np.array([[np.log(share / (1 - share)), 0.0] for share in np.linspace(0.2, 0.9, count)])
    scores = np.concatenate([odds, [[0.0, 0.0]]])
    long, short = Classification(labels=("0", "1")).predictions(scores, features, examples)
    assert long.details["probabilities"]["0"] == pytest.approx(0.55)
    assert (long.key, long.value, short.score) == ("long", "0", pytest.approx(0.5))
    several = MultiLabel(labels=("0", "1")).predictions(scores, features, examples)[0]
    assert several.details["probabilities"] == pytest.approx({"0": 0.55, "1": 0.5})
    number = Regression(offset=1.0, scale=2.0).predictions(scores[:, :1], features, examples)[0]
    assert number.value == pytest.approx(1 + 2 * odds[:, 0].mean())


def test_a_text_of_several_pairs_is_encoded_once(tokenizers, monkeypatch):
    encoded, encode = [], StreamEncoder.encode
    monkeypatch.setattr(StreamEncoder, "encode", lambda self, texts: encoded.extend(texts) or encode(self, texts))
    pairs = [example(texts) for texts in (("the cat", "a dog"), ("the cat", "a cat"), ("a dog", "the cat"))]
    layout = Layout(tokenizers["wordpiece"], 12, True)
    together = sequences_of(Classification(labels=("0", "1")).features(pairs, layout, training=False))
    assert encoded == ["the cat", "a dog", "a cat"]
    alone = [Classification(labels=("0", "1")).features([each], layout, training=False) for each in pairs]
    assert together == [sequences_of(each)[0] for each in alone]


# Labels.


def test_labels_are_found_and_sorted_as_numbers_where_they_are_numbers():
    def labels_of(kind, labels):
        return make_task(kind, None, labeled(labels), {}).labels

    assert labels_of("classification", ["10", "9", "-1", "9"]) == ("-1", "9", "10")
    assert labels_of("classification", ["b", "10", "a"]) == ("10", "a", "b")
    assert labels_of("multi_label", [("b", "a"), (), ("c",)]) == ("a", "b", "c")


# The task values.


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("classification", {"labels": ("a",)}, "only 'a'"),
        ("classification", {"labels": ("a", "b", "a")}, "'a' is listed twice"),
        (
            "classification",
            {"labels": ("a", "b"), "metrics": ("acuracy",)},
            "metrics.0: must be 'accuracy', .*found 'acuracy'",
        ),
        ("classification", {"labels": ("a", "b"), "metrics": ()}, "metrics: .*at least 1 item"),
        ("classification", {"labels": ("a", "b", "c"), "metrics": ("f1",)}, "'f1' is of one class"),
        ("classification", {"labels": ("a", "b"), "positive": "c"}, "positive class: unknown label 'c'"),
        ("classification", {"labels": ("a", "b"), "metric": ["f1"]}, "did you mean 'metrics'"),
        ("classification", {"labels": ("a", "b"), "class_weights": [1, 2, 3]}, "3 class weights for 2 classes"),
        ("classification", {"labels": ("a", "b"), "class_weights": "even"}, "class_weights.*balanced"),
        ("classification", {"labels": ("a", "b"), "class_weights": [1, 0]}, "class_weights"),
        ("multi_label", {"labels": ("a", "b"), "threshold": 1.0}, "threshold"),
        ("multi_label", {"labels": ("a", "b"), "metrics": ("f1_c",)}, "f1_c"),
        ("regression", {"scale": 0}, "scale"),
        ("regression", {"offset": math.inf}, "offset"),
        ("regression", {"metrics": ("mean_absolute_error", "pearson")}, "where lower is better"),
    ],
)
def test_tasks_that_cannot_be_are_refused(name, fields, message):
    with pytest.raises(MaskwrightError, match=message):
        make_task(name, None, labeled([1.0, 2.0]), fields)


@pytest.mark.parametrize(
    "task",
    [
        Classification(labels=("a", "b"), metrics=("f1", "accuracy"), positive="a"),
        Classification(labels=("a", "b"), class_weights=(0.5, 2.0)),
        Regression(scale=5, metrics=("spearman",)),
        MultiLabel(labels=("a", "b"), threshold=0.3),
        MultipleChoice(max_option_length=64),
        QuestionAnswering(metric="squad_v2", null_threshold=-2.75, doc_stride=64),
    ],
    ids=lambda task: task.kind,
)
def test_tasks_come_back_from_json(task):
    assert task_from_json(json.loads(json.dumps(task.to_json()))) == task


# Scores.


def test_classification_scores_equal_a_plain_oracle(tokenizers):
    labels = ["b", "a", "c", "a", "b", "b", "a"]
    examples = labeled(labels)
    task = Classification(labels=("a", "b", "c"), metrics=("accuracy", "macro_f1", "matthews"))
    scores = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32) * 3
    predictions = scored(task, examples, scores, tokenizers["wordpiece"])
    right = 0
    for number, prediction in enumerate(predictions):
        powers = [math.exp(score) for score in scores[number].tolist()]
        probabilities = dict(zip("abc", (power / sum(powers) for power in powers), strict=True))
        best = max(probabilities, key=lambda label: probabilities[label])
        assert (prediction.key, prediction.value) == (f"line {number}", best)
        assert prediction.score == pytest.approx(probabilities[best], abs=1e-9)
        assert prediction.details["probabilities"] == pytest.approx(probabilities, abs=1e-9)
        right += best == labels[number]
    measured = task.measure(predictions, examples)
    assert list(measured) == ["accuracy", "macro_f1", "matthews"]
    assert measured["accuracy"] == pytest.approx(right / 7)
    loss = loss_of(task, scores, a_batch(task, examples, tokenizers["wordpiece"]))
    surprise = [-math.log(p.details["probabilities"][label]) for p, label in zip(predictions, labels, strict=True)]
    assert float(loss) == pytest.approx(sum(surprise), abs=1e-4)
    weights = {"a": 0.5, "b": 2.0, "c": 3.0}
    task = task.replace(class_weights=tuple(weights.values()))
    loss = loss_of(task, scores, a_batch(task, examples, tokenizers["wordpiece"]))
    weighted = [weights[label] * each for label, each in zip(labels, surprise, strict=True)]
    assert float(loss) == pytest.approx(sum(weighted), abs=1e-4)


def test_class_weights_are_copied_to_the_device_once(tokenizers, monkeypatch):
    task = Classification(labels=("a", "b"), class_weights=(0.25, 4.0))
    batch, scores = a_batch(task, labeled(["a", "b"]), tokenizers["wordpiece"]), torch.zeros(2, 2)
    first = task.loss(scores, batch.labels, batch)
    monkeypatch.setattr(torch, "tensor", None)
    assert torch.equal(task.loss(scores, batch.labels, batch), first)


def test_multi_label_scores_equal_a_plain_oracle(tokenizers):
    labels = [("a", "c"), (), ("b",), ("a", "b", "c")]
    examples, task = labeled(labels), MultiLabel(labels=("a", "b", "c"), threshold=0.4)
    scores = np.array([[2, -2, 0], [-1, -1, -1], [-0.3, 1, -3], [3, -1, 2]], dtype=np.float32)
    predictions = scored(task, examples, scores, tokenizers["wordpiece"])
    loss = 0.0
    for number, prediction in enumerate(predictions):
        probabilities = [1 / (1 + math.exp(-score)) for score in scores[number].tolist()]
        assert prediction.value == [label for label, p in zip("abc", probabilities, strict=True) if p >= 0.4]
        of_set = math.prod(p if p >= 0.4 else 1 - p for p in probabilities)
        assert prediction.score == pytest.approx(of_set)
        assert list(prediction.details["probabilities"].values()) == pytest.approx(probabilities)
        its_labels = labels[number]
        loss -= sum(
            math.log(p if label in its_labels else 1 - p) for label, p in zip("abc", probabilities, strict=True)
        )
    assert [each.value for each in predictions] == [["a", "c"], [], ["a", "b"], ["a", "c"]]
    actual = loss_of(task, scores, a_batch(task, examples, tokenizers["wordpiece"]))
    assert float(actual) == pytest.approx(loss / 3, abs=1e-5)
    # Of six right and six predicted decisions five agree.
    measured = task.measure(predictions, examples)
    assert measured["micro_f1"] == pytest.approx(2 * 5 / 12)
    assert measured["subset_accuracy"] == pytest.approx(2 / 4)
    assert task.report(predictions, examples).by_class["b"] == pytest.approx(
        {"precision": 1.0, "recall": 1 / 2, "f1": 2 / 3, "examples": 2}
    )


def test_regression_scales_targets_and_scales_outputs_back(tokenizers):
    examples = labeled([0.0, 5.0, 2.5, 1.25])
    task = Regression(scale=5)
    batch = a_batch(task, examples, tokenizers["wordpiece"])
    assert (batch.labels.tolist(), batch.labels.dtype) == ([0, 1, 0.5, 0.25], torch.float32)
    scores = np.array([[-0.1], [0.9], [0.5], [1.5]], dtype=np.float32)
    assert float(loss_of(task, scores, batch)) == pytest.approx(0.1**2 + 0.1**2 + 0 + 1.25**2, abs=1e-6)
    predictions = scored(task, examples, scores, tokenizers["wordpiece"])
    values = np.array([-0.5, 4.5, 2.5, 7.5])
    assert [each.value for each in predictions] == pytest.approx(values, abs=1e-6)
    assert [each.score for each in predictions] == [None] * 4
    measured = task.measure(predictions, examples)
    assert list(measured) == ["r_squared", "pearson", "spearman", "mean_absolute_error"]
    assert measured["pearson"] == pytest.approx(np.corrcoef(values, [0, 5, 2.5, 1.25])[0, 1])
    assert measured["spearman"] == pytest.approx(np.corrcoef([0, 2, 1, 3], [0, 3, 2, 1])[0, 1])
