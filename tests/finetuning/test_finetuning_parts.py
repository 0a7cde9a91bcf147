"""The small parts of fine-tuning: early stopping, rates by layer, holding out, labels, command-line arguments."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import Answer, ChoiceExample, QuestionExample, TaggedExample, TextExample
from maskwright.finetuning.labeled import data_warnings, hold_out
from maskwright.finetuning.predict import split_inputs
from maskwright.finetuning.seed_run import DevResult, SeedResult, best_of, rate_share, should_stop, swapped
from maskwright.finetuning.tasks.multiple_choice import MultipleChoice
from maskwright.finetuning.tasks.question_answering import QuestionAnswering
from maskwright.finetuning.tasks.reranking import Reranking
from maskwright.finetuning.tasks.tagging import Tagging
from maskwright.finetuning.tasks.texts import Classification, MultiLabel, Regression
from maskwright.model.config import EncoderConfig


def history(*values):
    return [
        DevResult(step=number, epoch=number, metrics={"f1": value, "x": 9.0}) for number, value in enumerate(values)
    ]


def test_the_last_of_the_best_is_kept():
    assert best_of(history(0.2, 0.7, 0.5, 0.7, 0.1)) == 3
    assert best_of(history(math.nan, 0.0, math.nan)) == 1


@pytest.mark.parametrize(
    ("values", "is_rising"), [((0.1, 0.3, 0.2, 0.4), True), ((0.1, 0.4, 0.4), False), ((0.4,), False), ((), False)]
)
def test_dev_rises_if_the_last_epoch_is_the_best(values, is_rising):
    run = SeedResult(seed=0, folder=Path(), steps=4, history=tuple(history(*values)))
    assert run.is_rising == is_rising


@given(st.lists(st.floats(0, 1), min_size=1), st.integers(1, 5))
def test_training_stops_after_so_many_worse_ones(values, patience):
    best = max(values)
    worse = len(values) - 1 - max(number for number, value in enumerate(values) if value == best)
    assert should_stop(history(*values), patience) == (worse >= patience)
    assert not should_stop(history(*values), 0)


BASE = EncoderConfig(num_layers=12)
LARGE = EncoderConfig(num_layers=24, hidden_size=1024, num_heads=16)


@pytest.mark.parametrize(
    ("name", "config", "decay", "share"),
    [
        ("head.output.weight", BASE, 0.8, 1.0),
        ("encoder.attention_blocks.11.query.weight", BASE, 0.8, 0.64),
        ("encoder.ffn_blocks.0.dense_in.bias", BASE, 0.8, 0.0550),
        ("encoder.word_embeddings.weight", BASE, 0.8, 0.0440),
        ("encoder.embedding_norm.weight", BASE, 0.8, 0.0440),
        ("encoder.embedding_projection.weight", BASE, 0.8, 0.0440),
        ("encoder.ffn_blocks.23.norm.weight", LARGE, 0.9, 0.81),
        ("encoder.position_embeddings.weight", LARGE, 0.9, 0.0646),
    ],
)
def test_electras_rates_fall_as_its_code_has_them(name, config, decay, share):
    assert rate_share(name, config, decay) == pytest.approx(share, abs=5e-5)


def test_shared_blocks_learn_as_the_highest_layer_they_serve():
    shared = EncoderConfig(num_layers=12, sharing="all", num_groups=4)
    shares = [rate_share(f"encoder.ffn_blocks.{block}.norm.bias", shared, 0.5) for block in range(4)]
    assert shares == [0.5**11, 0.5**8, 0.5**5, 0.5**2]


def texts(*labels):
    return [TextExample(key=f"{number}", texts=("a",), label=label) for number, label in enumerate(labels)]


@given(st.integers(2, 300))
def test_a_tenth_is_held_out_whole_and_the_same_every_time(count):
    examples = [TextExample(key=f"{number}", texts=(f"text {number}",), label="x") for number in range(count)]
    train, dev = hold_out(examples, "f")
    # Of small files five, but no more than a third: one example could not tell two models.
    assert len(dev) == max(1, round(count / 10), min(5, count // 3))
    assert sorted([*train, *dev], key=lambda one: int(one.key)) == examples
    assert (train, dev) == hold_out(examples, "f")


@given(st.lists(st.sampled_from("abcdefghijklmnop"), min_size=2, max_size=200).filter(lambda found: len({*found}) > 1))
def test_equal_texts_stay_together(groups):
    examples = [TextExample(key=f"{n}", texts=(text, "b"), label="x") for n, text in enumerate(groups)]
    train, dev = hold_out(examples, "f")
    assert not {one.texts for one in train} & {one.texts for one in dev}
    assert train
    wanted = max(1, round(len(groups) / 10), min(5, len(groups) // 3))
    assert 1 <= len(dev) <= max(wanted, min(groups.count(text) for text in groups))


def test_questions_about_one_text_stay_together():
    examples = [
        QuestionExample(key=f"{text}-{number}", question="?", context=f"text {text}", answers=())
        for text in range(30)
        for number in range(4)
    ]
    train, dev = hold_out(examples, "f")
    assert len(dev) == 12
    assert not {one.context for one in train} & {one.context for one in dev}
    with pytest.raises(DataError, match="f has 4 examples of 1 text:"):
        hold_out(examples[:4], "f")


def test_pairs_are_swapped_and_single_texts_are_not():
    pair = TextExample(key="1", texts=("a", "b"), label="x")
    assert swapped([pair, *texts("x")]) == [TextExample(key="1", texts=("b", "a"), label="x")]


def test_arguments_are_texts_or_files(tmp_path):
    file = tmp_path / "texts"
    file.write_text("x")
    for word in (str(file), str(tmp_path), "missing.csv.gz"):
        assert split_inputs([word], [Path("x.csv")]) == ([], [Path(word), Path("x.csv")])
    for text in ("x" * 5000, "我" * 100, "~5 stars", "what about b.csv", "a\0b"):
        assert split_inputs([text], [Path("-")]) == ([text], [Path("-")])
    with pytest.raises(DataError, match="is a file, other arguments are not"):
        split_inputs(["a text", str(file)], [])


def text(*texts, label="a"):
    return TextExample(key="1", texts=texts, label=label)


def question(text, context):
    return QuestionExample(key="1", question=text, context=context, answers=(Answer(text="x", start=None),))


def choice(*options, label=0):
    return ChoiceExample(key="1", context="c", question="q", options=options, label=label)


def tagged(*words):
    return TaggedExample(key="1", words=words, tags=("O",) * len(words))


@pytest.mark.parametrize(
    ("train", "dev", "warning"),
    [
        (text("a"), [text("a", label="b"), text("A")], "1 of 2 inputs also in train"),
        (text("a", "b"), [text("a", "b")] * 2 + [text("b", "a")], "2 of 3 inputs also"),
        (tagged("a", "b"), [tagged("a", "b"), tagged("a")], "1 of 2 inputs also"),
        (question("q", "c"), [question("q", "c"), question("q", "d")], "1 of 2 inputs also"),
        (choice("a", "b"), [choice("a", "b", label=1), choice("b", "a")], "1 of 2 inputs also"),
    ],
)
def test_texts_that_occur_in_two_parts_are_counted(train, dev, warning):
    ((part, actual),) = data_warnings({"train": [train], "dev": dev})
    assert part == "dev"
    assert actual.startswith(warning)


@pytest.mark.parametrize(
    ("dev", "task", "warning"),
    [
        (texts("a", "b"), Classification(labels=("a", "b")), "2 examples, each 50 % of the score"),
        (texts("a", "b"), Classification(labels=("a", "b"), metrics=("matthews", "accuracy")), "only 2 examples"),
        (texts("a", "b"), Classification(labels=("a", "b"), metrics=("f1", "accuracy")), "only 2 examples"),
        (texts(("a",), ()), MultiLabel(labels=("a", "b")), "only 2 examples"),
        (texts(("a",), ()), MultiLabel(labels=("a", "b"), metrics="subset_accuracy"), "2 examples, each 50 %"),
        (texts(0.5, 0.1), Regression(), "only 2 examples"),
        (texts(0.5, 0.1), None, "only 2 examples"),
        ([tagged("a"), tagged("b")], Tagging(labels=("O", "X")), "only 2 examples"),
        ([question("a", "c"), question("b", "c")], QuestionAnswering(), "2 examples, each 50 % of the score"),
        ([choice("a", "b"), choice("b", "a")], MultipleChoice(), "2 examples, each 50 % of the score"),
        ([text("a", str(n), label=n % 2) for n in range(60)], Reranking(), "1 query, each 100 % of the score"),
    ],
)
def test_a_share_of_the_score_is_stated_only_of_what_is_averaged(dev, task, warning):
    ((_, actual),) = data_warnings({"train": [], "dev": dev}, task=task)
    assert actual.startswith(warning)


def test_tags_that_training_lacks_are_a_warning():
    task = Tagging(labels=("B-A", "O"), entities=True, metrics=("f1",))
    dev = [replace(tagged(str(n), "b"), tags=("B-X" if n < 2 else "B-A", "O")) for n in range(60)]
    ((part, warning),) = data_warnings({"train": [], "dev": dev, "test": [tagged(*"ab")] * 60}, task=task)
    assert part == "dev"
    assert "B-X 2" in warning
    assert "B-A" not in warning


def test_a_different_label_for_every_example_is_a_warning():
    many, two = ([text(str(n), label=str(n % labels)) for n in range(60)] for labels in (60, 2))
    assert list(data_warnings({"train": many})) == [
        ("train", "60 different labels in 60 examples: is --label the right column?")
    ]
    assert not list(data_warnings({"train": two}))
    assert not list(data_warnings({"train": many[:6]}))
