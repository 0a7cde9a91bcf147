"""Questions with options: sequences as the originals lay them out, a softmax over however many options there are."""

import itertools
import math

import numpy as np
import pytest
import torch

from maskwright.core.errors import DataError, MaskwrightError
from maskwright.finetuning.examples import ChoiceExample
from maskwright.finetuning.features import FeatureCollator, Layout
from maskwright.finetuning.tasks import make_task
from maskwright.finetuning.tasks.multiple_choice import MultipleChoice

CONTEXT = "W: What did the woman say about the price of the tour? M: It sounds reasonable."


def question(context=CONTEXT, text="What is it?", options=("A dog.", "A quick brown fox."), label=None, key="1"):
    return ChoiceExample(key=key, context=context, question=text, options=tuple(options), label=label)


def made(examples, tokenizer, max_length=512, **fields):
    features = MultipleChoice(**fields).features(examples, Layout(tokenizer, max_length, True), training=False)
    bounds = features.cu_seqlens.tolist()
    return features, [features.ids[begin:end].tolist() for begin, end in itertools.pairwise(bounds)]


def test_options_are_pairs_as_transformers_makes_them(kind, tokenizers, auto_tokenizers):
    examples = [
        question(),
        question(text="The woman is _ .", options=("the dog", "lazy", "quick")),
        question(text="", options=("ends so.", "or so.")),
        question(context="", text="Where does it sleep?", options=("In the tree", "In 2019")),
        question(text="Does my_var hold?", options=("yes", "no")),
    ]
    firsts = [CONTEXT] * 7 + ["Where does it sleep?"] * 2 + [CONTEXT] * 2
    seconds = ["What is it? A dog.", "What is it? A quick brown fox."]
    seconds += ["The woman is the dog .", "The woman is lazy .", "The woman is quick .", "ends so.", "or so."]
    seconds += ["In the tree", "In 2019", "Does my_var hold? yes", "Does my_var hold? no"]
    features, sequences = made(examples, tokenizers[kind])
    expected = auto_tokenizers[kind](firsts, seconds, return_token_type_ids=True)
    assert sequences == expected["input_ids"]
    if kind != "byte_bpe":
        assert features.segment_ids.tolist() == list(itertools.chain(*expected["token_type_ids"]))
    assert features.units.tolist() == [0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4]
    assert len(features.truncated) == 0


def plain_sequence(context, option, special, length, longest_option):
    """Lay one option out as ALBERT's race_utils.py does, where it leaves the context a token."""
    option = option[-min(longest_option, length - 4) :]
    return [special.cls, *context[: length - 3 - len(option)], special.sep, *option, special.sep]


@pytest.mark.parametrize(("length", "longest_option"), [(30, 128), (20, 4), (9, 128), (5, 3), (24, 9)])
def test_long_options_lose_their_beginning_and_then_contexts_their_end(length, longest_option, tokenizers):
    tokenizer = tokenizers["wordpiece"]
    examples = [question(options=("A dog.", "It sounds reasonable. " * 3)), question(context="It."), question()]
    features, sequences = made(examples, tokenizer, length, max_option_length=longest_option)
    expected, cut = [], 0
    for each in examples:
        context = tokenizer.encode(each.context).ids.tolist()
        whole = []
        for option in each.options:
            ids = tokenizer.encode(f"{each.question} {option}").ids.tolist()
            expected.append(plain_sequence(context, ids, tokenizer.special_tokens, length, longest_option))
            whole.append(len(expected[-1]) == 3 + len(context) + len(ids))
        cut += not all(whole)
    assert sequences == expected
    assert max(map(len, sequences)) <= length
    assert len(features.truncated) == cut > 0


@pytest.mark.parametrize(
    ("blanked", "expected"),
    [
        ("He is _ .", "He is so ."),
        ("_ is ____", "so is so"),
        ("the_name _", "the_name so"),
        ("a _", "a so"),
        ("这是_吗", "这是_吗 so"),
        ("“_”", "“so”"),
    ],
)
def test_option_fills_the_blanks_of_a_question(blanked, expected, tokenizers):
    tokenizer = tokenizers["byte_bpe"]
    _, sequences = made([question(text=blanked, options=("so", r"\1"))], tokenizer)
    special = tokenizer.special_tokens
    for ids, text in zip(sequences, (expected, expected.replace("so", r"\1")), strict=True):
        *_, second = [list(part) for sep, part in itertools.groupby(ids, lambda id: id == special.sep) if not sep]
        assert tokenizer.decode(second) == text


# Labels and scores.

QUESTIONS = [
    question(label=1, key="a"),
    question(options=("the", "dog", "fox", "tree"), label=3, key="b"),
    question(options=("the", "dog", "fox"), label=0, key="c"),
]
SCORES = np.array([0.5, -1, 2, 0, 1, 3, -2, 4, 4.5], dtype=np.float32)


def test_scores_of_ragged_options_equal_a_plain_oracle(tokenizers):
    task, tokenizer = MultipleChoice(), tokenizers["wordpiece"]
    features = task.features(QUESTIONS, Layout(tokenizer, 60, True), training=True)
    losses = []
    batcher = FeatureCollator(features, tokens=999, device=torch.device("cpu"))
    scores = torch.tensor(SCORES[:, None], requires_grad=True)
    batch = batcher.batch(np.arange(3))
    loss = task.loss(scores, batch.labels, batch)
    loss.backward()
    predictions = task.predictions(SCORES[:, None], features, QUESTIONS)
    begin = 0
    gradient = []
    for example, prediction in zip(QUESTIONS, predictions, strict=True):
        powers = [math.exp(score) for score in SCORES[begin : begin + len(example.options)].tolist()]
        begin += len(powers)
        probabilities = [power / sum(powers) for power in powers]
        best = probabilities.index(max(probabilities))
        assert (prediction.key, prediction.value) == (example.key, best)
        assert prediction.score == pytest.approx(probabilities[best])
        assert prediction.details["option"] == example.options[best]
        assert prediction.details["probabilities"] == pytest.approx(probabilities)
        losses.append(-math.log(probabilities[example.label]))
        gradient += [p - (number == example.label) for number, p in enumerate(probabilities)]
    assert float(loss.detach()) == pytest.approx(sum(losses), abs=1e-5)
    assert scores.grad[:, 0].tolist() == pytest.approx(gradient, abs=1e-6)
    assert [prediction.value for prediction in predictions] == [0, 3, 2]
    assert task.measure(predictions, QUESTIONS) == pytest.approx({"accuracy": 1 / 3})


def test_bad_settings_are_refused(tokenizers):
    with pytest.raises(MaskwrightError, match="max_option_length"):
        make_task("multiple_choice", None, [], {"max_option_length": 0})
    with pytest.raises(DataError, match="are too short"):
        made([question()], tokenizers["byte_bpe"], 5)
