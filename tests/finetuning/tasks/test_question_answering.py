"""Answers cut from texts: windows, targets, loss, decoding, thresholds."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from maskwright.core.errors import DataError, MaskwrightError
from maskwright.core.ranges import Ranges
from maskwright.finetuning.examples import Answer, QuestionExample
from maskwright.finetuning.features import FeatureCollator, Layout
from maskwright.finetuning.tasks import make_task, task_from_json
from maskwright.finetuning.tasks.base import Prediction
from maskwright.finetuning.tasks.question_answering import QuestionAnswering

SURE = 50.0


def question(context, answer=None, key="q", start=None):
    """A question whose answer is the first such text, or that cannot be answered."""
    answers = ()
    if answer is not None:
        answers = (Answer(text=answer, start=context.index(answer) if start is None else start),)
    return QuestionExample(
        key=key, question="What did they say?", context=context, answers=answers, is_impossible=answer is None
    )


def features_of(task, examples, tokenizer, max_length=40, training=False):
    return task.features(examples, Layout(tokenizer, max_length, True), training=training)


def text_places(features, tokenizer):
    """The window of each sequence: between the separators."""
    separators = np.flatnonzero(features.ids == tokenizer.special_tokens.sep)
    question_ends = separators[np.searchsorted(separators, features.cu_seqlens[:-1])]
    return Ranges(question_ends + Layout(tokenizer, 40, True).separators, features.cu_seqlens[1:] - 1)


def perfect_scores(learnt):
    """Scores of a model that has learnt all targets by heart; of windows without an answer it says so."""
    scores = np.zeros((len(learnt.ids), 2), dtype=np.float32)
    for index in (0, 1):
        scores[learnt.cu_seqlens[:-1] + learnt.labels[:, index], index] = SURE
    return scores


# ---------------------------------------------------------------- sequences


def test_sequences_are_those_of_transformers(kind, tokenizers, auto_tokenizers):
    examples = [
        question("Angela Merkel visited New York in 2019 and met the press there twice."),
        question("北京大学在一八九八年建立，至今已有一百多年。"),
        question(" It sounds [SEP] reasonable.\n"),
    ]
    actual = features_of(QuestionAnswering(), examples, tokenizers[kind], 384)
    for number, example in enumerate(examples):
        tokens = slice(*actual.cu_seqlens[number : number + 2])
        expected = auto_tokenizers[kind](example.question, example.context)
        assert actual.ids[tokens].tolist() == expected["input_ids"]
    # The text and the separator after it are the second segment.
    indices = text_places(actual, tokenizers[kind])
    for start, end, last in zip(indices.starts, indices.ends, actual.cu_seqlens[1:], strict=True):
        assert actual.segment_ids[start : end + 1].all()
        assert end + 1 == last
    assert actual.segment_ids.sum() == (indices.lengths + 1).sum()


def test_windows_begin_a_stride_apart_and_cover_the_text(tokenizers):
    tokenizer = tokenizers["wordpiece"]
    text = "the woman met the press about the price of the tour " * 10
    tokens = len(tokenizer.encode(text).ids)
    num_question = len(tokenizer.encode("What did they say?").ids)
    for max_length, stride in ((64, 16), (64, 1000), (40, 7)):
        window = max_length - 3 - num_question
        actual = features_of(
            QuestionAnswering(doc_stride=stride), [question(text)], tokenizer, max_length, training=False
        )
        # The published loop, written out (run_squad.py:281-292).
        expected, start = [], 0
        while True:
            length = min(tokens - start, window)
            expected.append((start, length))
            if start + length == tokens:
                break
            start += min(length, stride)
        indices = text_places(actual, tokenizer)
        ids = tokenizer.encode(text).ids
        assert [
            (actual.ids[low:high] == ids[begin : begin + length]).all()
            for (begin, length), low, high in zip(expected, indices.starts, indices.ends, strict=True)
        ] == [True] * len(expected)
        assert np.diff(actual.cu_seqlens).max() == max_length
        assert set(actual.examples) == {0}
        assert len(actual.truncated) == 0


# ---------------------------------------------------------------- targets


def test_targets_are_the_tokens_of_the_answer_in_windows_that_hold_it_whole(tokenizers):
    tokenizer = tokenizers["wordpiece"]
    text = "the press " * 20 + "New York in 2019 " + "the price " * 20
    learnt = features_of(
        QuestionAnswering(doc_stride=10), [question(text, "New York in 2019")], tokenizer, 40, training=True
    )
    answer = tokenizer.encode("New York in 2019").ids.tolist()
    whole = 0
    for low, high, (first, last) in zip(learnt.cu_seqlens[:-1], learnt.cu_seqlens[1:], learnt.labels, strict=True):
        ids = learnt.ids[low:high].tolist()
        starts = [start for start in range(len(ids)) if ids[start : start + len(answer)] == answer]
        if starts:
            whole += 1
            assert [first, last] == [starts[0], starts[0] + len(answer) - 1]
        else:
            assert [first, last] == [0, 0]
    assert 1 < whole < learnt.num_units


def test_the_first_right_answer_with_a_position_is_the_target(tokenizers):
    text = "the cat sat"
    known, unknown = Answer(text="sat", start=8), Answer(text="dog", start=None)
    task, tokenizer = QuestionAnswering(), tokenizers["wordpiece"]
    examples = [
        QuestionExample(key="0", question="?", context=text, answers=(unknown, known)),
        QuestionExample(key="1", question="?", context=text, answers=(unknown,)),
        QuestionExample(key="2", question="?", context=text, answers=()),
        QuestionExample(key="3", question="?", context=text, answers=(known,)),
    ]
    learnt = features_of(task, examples, tokenizer, training=True)
    assert learnt.examples.tolist() == [0, 3]
    assert learnt.labels[0].tolist() == learnt.labels[1].tolist()
    everything = features_of(task, examples, tokenizer)
    assert everything.examples.tolist() == [0, 1, 2, 3]
    assert everything.labels is None


# ---------------------------------------------------------------- loss


def test_loss_is_the_mean_of_both_cross_entropies_of_each_sequence(tokenizers):
    tokenizer = tokenizers["wordpiece"]
    examples = [question(f"the cat sat {'on the mat ' * many}", "cat", str(many)) for many in range(6)]
    learnt = features_of(QuestionAnswering(), examples, tokenizer, 384, training=True)
    batch = FeatureCollator(learnt, tokens=10_000, device=torch.device("cpu")).batch(np.array([0, 2, 3, 5]))
    scores = torch.randn(len(batch.batch.ids), 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = QuestionAnswering().loss(scores, batch.labels, batch)
    expected = torch.zeros(())
    for index, number in enumerate((0, 2, 3, 5)):
        first, length = int(batch.batch.first_tokens[index]), int(batch.batch.lengths[index])
        of_sequence = scores[first : first + length]
        start, end = learnt.labels[number].tolist()
        expected = (
            expected
            + (
                F.cross_entropy(of_sequence[:, 0], torch.tensor(start))
                + F.cross_entropy(of_sequence[:, 1], torch.tensor(end))
            )
            / 2
        )
    torch.testing.assert_close(loss, expected)
    (gradient,) = torch.autograd.grad(loss, scores)
    (expected_gradient,) = torch.autograd.grad(expected, scores)
    torch.testing.assert_close(gradient, expected_gradient)


# ---------------------------------------------------------------- decoding

words = st.sampled_from([
    "the", "The", "café", "cafe\u0301", "q\u0307\u0323", "naïve,", "don't", "(press)", "2019", "3.5%", "U.S.",
    "北京大学", "一百", "天气很好", "😀", "❤\ufe0f", "👩\u200d👩\u200d👧", "𠀀𠀁", "हिन्दी", "Straßen",
    "İstanbul", "ﬁx", "x²",
])  # fmt: skip
gaps = st.sampled_from([" "] * 6 + ["  ", "\n", "\u3000", " \t ", "\r\n"])


@given(data=st.data())
@settings(max_examples=40)
def test_right_answer_is_decoded_from_perfect_scores(kind, data, tokenizers):
    parts = data.draw(st.lists(st.tuples(words, gaps), min_size=1, max_size=150))
    first = data.draw(st.integers(0, len(parts) - 1))
    last = min(len(parts) - 1, first + data.draw(st.integers(0, 1)))
    text = data.draw(gaps) if data.draw(st.booleans()) else ""
    start = end = 0
    for number, (word, gap) in enumerate(parts):
        start = len(text) if number == first else start
        text += word
        end = len(text) if number == last else end
        text += gap
    example = question(text, text[start:end], start=start)
    # Half a window is more than such an answer has: the window with the widest context holds it whole.
    task = QuestionAnswering(doc_stride=32, max_answer_length=60)
    learnt = features_of(task, [example], tokenizers[kind], 160, training=True)
    scores = perfect_scores(learnt)
    scores[learnt.cu_seqlens[:-1][learnt.labels[:, 0] == 0]] -= SURE
    (predicted,) = task.predictions(scores, features_of(task, [example], tokenizers[kind], 160), [example])
    best = predicted.details["answers"][0]
    assert (predicted.value, best["start"], best["end"]) == (text[start:end], start, end)
    assert task.measure([predicted], [example])["exact_match"] == 100


def plain_widest_context(features, tokenizer, stride):
    """The published rule, token by token (run_squad.py:425-459)."""
    indices = text_places(features, tokenizer)
    spans = {}
    for window, example in enumerate(features.examples.tolist()):
        of_example = spans.setdefault(example, [])
        start = 0 if not of_example else of_example[-1][1] + min(of_example[-1][2], stride)
        of_example.append((window, start, int(indices.lengths[window])))
    flags = [False] * len(features.ids)
    for of_example in spans.values():
        for window, start, length in of_example:
            for index in range(length):
                best, best_window = None, None
                for other, other_start, other_length in of_example:
                    left = start + index - other_start
                    right = other_start + other_length - 1 - (start + index)
                    if left < 0 or right < 0:
                        continue
                    score = min(left, right) + 0.01 * other_length
                    if best is None or score > best:
                        best, best_window = score, other
                flags[int(indices.starts[window]) + index] = best_window == window
    return flags


def plain_answers(task, scores, features, text, flags):
    """The published search for one example's answers, pair by pair (run_squad.py:747-845)."""
    candidates = []
    for window, table in enumerate(scores):
        low = int(features.cu_seqlens[window])
        usable = [index for index in range(len(table)) if features.offsets[low + index, 0] >= 0]
        begins = sorted((index for index in usable if flags[low + index]), key=lambda index: -table[index, 0])
        ends = sorted(usable, key=lambda index: -table[index, 1])
        for begin in begins[: task.n_best]:
            for end in ends[: task.n_best]:
                if begin <= end < begin + task.max_answer_length:
                    candidates.append((float(table[begin, 0]) + float(table[end, 1]), low + begin, low + end))
    answers = []
    for score, begin, end in sorted(candidates, key=lambda candidate: -candidate[0]):
        answer = text[features.offsets[begin, 0] : features.offsets[end, 1]]
        if len(answers) < task.n_best and answer not in [seen for seen, _ in answers]:
            answers.append((answer, score))
    return answers


@given(
    seed=st.integers(0, 2**32 - 1),
    n_best=st.integers(1, 6),
    max_answer_length=st.integers(1, 12),
    stride=st.integers(3, 30),
)
@settings(max_examples=40)
def test_answers_are_those_of_the_published_search(seed, n_best, max_answer_length, stride, tokenizers):
    random = np.random.default_rng(seed)
    tokenizer = tokenizers["wordpiece"]
    pool = ["the", "price", "of", "tour", "北京", "café", "\n"]
    examples = [
        question(" ".join(random.choice(pool, size=random.integers(1, 80))), key=str(number)) for number in range(3)
    ]
    task = QuestionAnswering(n_best=n_best, max_answer_length=max_answer_length, doc_stride=stride, metric="squad_v2")
    actual = features_of(task, examples, tokenizer)
    scores = [random.normal(size=(length, 2)).astype(np.float32) for length in np.diff(actual.cu_seqlens)]
    predicted = task.predictions(np.concatenate(scores), actual, examples)
    flags = plain_widest_context(actual, tokenizer, stride)
    for number, (example, prediction) in enumerate(zip(examples, predicted, strict=True)):
        low, high = np.searchsorted(actual.examples, [number, number + 1])
        part = replace(actual, cu_seqlens=actual.cu_seqlens[low : high + 1])
        expected = plain_answers(task, scores[low:high], part, example.context, flags)
        of_none = min(float(table[0].astype(np.float64).sum()) for table in scores[low:high])
        answers = prediction.details["answers"]
        assert prediction.key == example.key
        if not expected:  # No best beginning goes with a best end: the published search finds nothing.
            assert bool(answers) == bool(example.context.strip())
            continue
        assert [answer["text"] for answer in answers] == [text for text, _ in expected]
        powers = np.exp([*(score for _, score in expected), of_none])
        shares = powers / powers.sum()
        assert [answer["score"] for answer in answers] == pytest.approx(shares[:-1])
        assert prediction.details["no_answer_probability"] == pytest.approx(shares[-1])
        assert prediction.details["no_answer_score"] == pytest.approx(of_none - expected[0][1])
        refused = of_none - expected[0][1] > 0
        assert prediction.value == ("" if refused else expected[0][0])
        assert prediction.score == pytest.approx(shares[-1] if refused else shares[0])


def test_an_answer_is_found_where_no_best_beginning_goes_with_a_best_end(tokenizers):
    tokenizer = tokenizers["wordpiece"]
    example = question("the cat sat on the mat")
    task = QuestionAnswering(n_best=1)
    actual = features_of(task, [example], tokenizer)
    table = np.zeros((len(actual.ids), 2), dtype=np.float32)
    table[len(table) - 2, 0] = 3  # begins at the end
    table[text_places(actual, tokenizer).starts[0], 1] = 4  # ends at the beginning
    (predicted,) = task.predictions(table, actual, [example])
    assert predicted.value == "the"


# ---------------------------------------------------------------- no answer


def prediction(best, sure_of_none, value="?"):
    answers = [{"text": best, "start": 0, "end": len(best), "score": 0.5}] if best else []
    details = {"answers": answers, "no_answer_score": sure_of_none, "no_answer_probability": 0.5}
    return Prediction(key="q", value=value, score=0.5, details=details)


def test_threshold_decides_between_the_best_answer_and_none(tokenizers):
    tokenizer = tokenizers["wordpiece"]
    example = question("the cat sat", "cat")
    task = QuestionAnswering(metric="squad_v2")
    actual = features_of(task, [example], tokenizer)
    scores = perfect_scores(features_of(task, [example], tokenizer, training=True))
    scores[0] = SURE + 1.5  # No answer scores better by 3.
    for threshold, value in ((2.9, ""), (3.1, "cat")):
        (predicted,) = task.replace(null_threshold=threshold).predictions(scores, actual, [example])
        assert predicted.value == value
        assert predicted.details["no_answer_score"] == pytest.approx(3)
    (predicted,) = QuestionAnswering().predictions(scores, actual, [example])
    assert predicted.value == "cat"
    assert "no_answer_score" not in predicted.details


def test_tuned_threshold_gives_the_best_f1():
    examples = [question("a cat", "cat"), question("a mat"), question("black cat", "black cat"), question("a rat")]
    predicted = [prediction("cat", -4.0), prediction("mat", 2.0), prediction("cat", 1.5), prediction("rat", 2.5)]
    assert QuestionAnswering(metric="squad_v2").tuned(predicted, examples).null_threshold == 1.5
    assert QuestionAnswering().tuned(predicted, examples) == QuestionAnswering()
    best = QuestionAnswering(metric="squad_v2").measure(predicted, examples)
    assert best["best_f1"] == 100.0 * (2 + 1 + 2 / 3) / 4
    assert best["best_f1_thresh"] == 1.5
    assert best["best_exact_thresh"] == -4.0
    assert next(iter(best)) == "f1"


def test_tuned_threshold_refuses_everything_where_that_is_best():
    examples = [question("a cat"), question("a mat")]
    predicted = [prediction("cat", -4.0), prediction("mat", -2.0)]
    threshold = QuestionAnswering(metric="squad_v2").tuned(predicted, examples).null_threshold
    assert -4.1 < threshold < -4.0


# ---------------------------------------------------------------- the value


def test_metric_follows_from_the_examples():
    assert make_task("question_answering", None, [question("a cat", "cat")], {}).metric == "squad"
    assert make_task("question_answering", None, [question("a cat", "cat"), question("a cat")], {}).metric == "squad_v2"
    assert make_task("question_answering", None, [question("北京大学", "北京")], {}).metric == "cmrc"
    assert make_task("question_answering", None, [question("北京大学", "北京")], {"metric": "squad"}).metric == "squad"
    assert make_task("question_answering", None, [], {}).metric == "squad"


def test_what_cannot_be_is_refused(tokenizers):
    for fields, message in (
        ({"metric": "squad2"}, "metric.*squad_v2"),
        ({"doc_stride": 0}, "doc_stride"),
        ({"metric": "cmrc", "null_threshold": 1.0}, "every question scored by 'cmrc' has an answer"),
        ({"metric": "squad_v2", "null_threshold": float("nan")}, "null_threshold"),
    ):
        with pytest.raises(MaskwrightError, match=message):
            task_from_json({"kind": "question_answering", **fields})
    tokenizer = tokenizers["wordpiece"]
    unanswerable = question("the cat", key="17")
    lost = QuestionExample(key="0", question="?", context="cat", answers=(Answer(text="dog", start=None),))
    with pytest.raises(DataError, match="none of the 1 questions"):
        features_of(QuestionAnswering(), [lost], tokenizer, training=True)
    with pytest.raises(DataError, match="are too short"):
        features_of(QuestionAnswering(), [lost], tokenizer, 4)
    with pytest.raises(DataError, match=r"example 17 has no answer.*squad_v2"):
        QuestionAnswering().check([unanswerable])
