"""Settings of fine-tuning: published rows, how they are laid over each other, and what is fitted to small models."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from maskwright.core.errors import RecipeError
from maskwright.finetuning.examples import TextExample
from maskwright.finetuning.hyperparameters import (
    Hyperparameters,
    fit_length,
    fit_length_to_texts,
    fit_stride,
    fit_training,
    published,
    system_of,
)
from maskwright.finetuning.published.benchmarks import BENCHMARKS
from maskwright.finetuning.published.settings import PUBLISHED
from maskwright.finetuning.tasks.question_answering import QuestionAnswering
from maskwright.finetuning.tasks.texts import Classification, Regression
from maskwright.model.config import EncoderConfig
from maskwright.recipes import catalog

BASE = EncoderConfig()
OTHER = SimpleNamespace(folder=Path("nowhere"), family="another")
LARGE = EncoderConfig(hidden_size=1024, num_heads=16, num_layers=24)
TINY = EncoderConfig(hidden_size=128, num_heads=2, num_layers=2)


def labeled(labels):
    return [TextExample(key=str(number), texts=("",), label=label) for number, label in enumerate(labels)]


def test_every_row_is_of_a_known_system_has_a_source_and_fits_the_fields():
    for row in PUBLISHED:
        assert {*row.systems} <= {name.partition("/")[0] for name in catalog.names()}, row
        assert row.source, row
        assert set(row.benchmarks) <= BENCHMARKS.keys(), row
        assert Hyperparameters(**row.settings).model_dump(include=set(row.settings)) == row.settings, row


def test_every_system_of_the_catalogue_has_settings():
    for name in catalog.names():
        settings, _, source = published(system_of(OTHER, name), "sequence", BENCHMARKS["sst-2"], BASE)
        assert settings.learning_rate <= 1e-4
        assert source


@pytest.mark.parametrize(
    ("system", "head", "benchmark", "expected"),
    [
        # Devlin et al. 2019, 4.1-4.4.
        ("bert", "sequence", "mnli", {"epochs": 3.0, "batch_size": 32, "bias_correction": False, "max_length": 128}),
        ("bert", "span", "squad-2.0", {"epochs": 2.0, "batch_size": 48, "learning_rate": 5e-5}),
        ("bert", "choice", "swag", {"epochs": 3.0, "batch_size": 16, "learning_rate": 2e-5}),
        # fairseq examples/roberta/config/finetuning.
        ("roberta", "sequence", "qqp", {"learning_rate": 1e-5, "batch_size": 32, "warmup_share": 0.25}),
        ("roberta", "sequence", "cola", {"warmup_share": 0.06, "betas": (0.9, 0.98), "decayed": "all"}),
        ("roberta", "choice", "race", {"learning_rate": 1e-5, "batch_size": 16, "weight_decay": 0.1, "epochs": 4.0}),
        # Lan et al. 2020, table 14; 5336 steps of 16 are ten passes over 8551.
        ("albert", "sequence", "cola", {"learning_rate": 1e-5, "epochs": 9.98, "hidden_dropout": 0.0}),
        ("albert", "choice", "race", {"learning_rate": 2e-5, "batch_size": 32, "epochs": 4.37}),
        # google-research/electra configure_finetuning.py.
        ("electra", "sequence", "sts-b", {"epochs": 10.0, "double_unordered": True}),
        ("electra", "token", "", {"max_length": 256}),
        # Joshi et al. 2020.
        ("spanbert", "span", "squad-2.0", {"epochs": 4.0, "learning_rate": 2e-5, "batch_size": 32, "max_length": 512}),
        # Cui et al. 2021, table IV.
        ("macbert", "span", "cmrc2018", {"epochs": 2.0, "learning_rate": 3e-5, "max_length": 512}),
        # PaddlePaddle/ERNIE, scripts.
        ("ernie", "sequence", "chnsenticorp", {"batch_size": 24, "epochs": 10.0, "warmup_share": 0.0}),
        ("distilbert", "sequence", "sst-2", {"head_dropout": 0.2, "epochs": 3.0}),
    ],
)  # fmt: skip
def test_settings_are_as_published(system, head, benchmark, expected):
    settings, _, source = published(system, head, BENCHMARKS.get(benchmark), BASE)
    assert settings.model_dump(include=set(expected)) == expected
    assert source


def test_electra_s_large_and_small_models_have_settings_of_their_own():
    large, *_ = published("electra", "sequence", BENCHMARKS["mnli"], LARGE)
    assert (large.learning_rate, large.layer_decay) == (5e-5, 0.9)
    small, *_ = published("electra", "sequence", BENCHMARKS["mnli"], EncoderConfig(hidden_size=256, num_heads=4))
    assert (small.learning_rate, small.weight_decay, small.layer_decay) == (3e-4, 0.0, 0.8)


def test_a_large_model_with_much_data_keeps_the_published_settings():
    settings, *_ = published("bert", "sequence", BENCHMARKS["mnli"], BASE)
    assert fit_training(settings, 392_702, (), width=768, system="bert") == (settings, ())
    assert fit_length(settings, 512, ()) == (settings, ())


@pytest.mark.parametrize(
    ("lengths", "limit", "expected"),
    [([20] * 100, 512, 128), ([129] * 100, 512, 160), ([400] * 2 + [20] * 98, 512, 416), ([400] + [20] * 99, 512, 128)],
)
def test_the_length_follows_the_training_texts(lengths, limit, expected):
    settings, choices = fit_length_to_texts(Hyperparameters(), np.array(lengths), limit, ())
    assert settings.max_length == expected
    assert [choice.field for choice in choices] == ["max_length"] * (expected != 128)
    assert fit_length_to_texts(Hyperparameters(), np.array(lengths), limit, ("max_length",))[1] == ()


@pytest.mark.parametrize(("width", "rate"), [(128, 1e-3), (256, 5e-4), (768, 1.7e-4)])
def test_a_model_pretrained_for_minutes_tolerates_a_higher_rate(width, rate):
    config = EncoderConfig(hidden_size=width, num_heads=width // 64)
    settings, *_ = published("bert", "sequence", None, config)
    fitted, choices = fit_training(settings, 100_000, (), width=width, system="bert", pretraining_tokens=4e6)
    assert fitted.learning_rate == rate
    assert "4M tokens" in choices[0].reason
    long, _ = fit_training(settings, 100_000, (), width=width, system="bert", pretraining_tokens=3e9)
    assert long.learning_rate < rate


def test_adjustments_have_reasons_and_spare_what_the_user_set():
    settings, *_ = published("bert", "sequence", None, TINY)
    fitted, choices = fit_training(settings, 40, (), width=128, system="bert")
    adjusted = {"learning_rate", "batch_size", "epochs", "bias_correction", "patience"}
    assert {choice.field for choice in choices} == adjusted
    assert all(choice.reason for choice in choices)
    assert all(getattr(fitted, choice.field) == choice.chosen for choice in choices)
    assert all(getattr(settings, choice.field) == choice.published for choice in choices)
    assert fitted.learning_rate > settings.learning_rate
    assert (fitted.epochs, fitted.patience) == (20.0, 5)
    fixed = {choice.field for choice in choices}
    assert fit_training(settings, 40, fixed, width=128, system="bert") == (settings, ())


@pytest.mark.parametrize(
    ("examples", "batch_size", "steps"),
    [(32, 8, 80), (100, 8, 260), (150, 8, 304), (250, 16, 304), (400, 16, 300), (2000, 32, 315), (9600, 32, 900)],
)
def test_little_data_has_small_batches_and_more_epochs(examples, batch_size, steps):
    settings, *_ = published("bert", "sequence", None, BASE)
    fitted, _ = fit_training(settings, examples, (), width=768, system="bert")
    assert (fitted.batch_size, fitted.total_steps(examples)) == (batch_size, steps)
    for fixed in ({"epochs"}, {"batch_size"}):
        assert fit_training(settings, examples, fixed, width=768, system="bert")[0].batch_size == 32
    assert fit_training(settings.replace(steps=10), examples, (), width=768, system="bert")[0].batch_size == 32


@pytest.mark.parametrize(
    ("classes", "batch_size", "epochs"), [(2, 32, 5.0), (15, 32, 5.0), (45, 32, 15.0), (200, 32, 16.0)]
)
def test_many_classes_have_more_steps(classes, batch_size, epochs):
    settings, *_ = published("bert", "sequence", None, BASE)
    fitted, choices = fit_training(settings, 2000, (), width=768, system="bert", num_classes=classes)
    assert (fitted.batch_size, fitted.epochs) == (batch_size, epochs)
    [reason] = [choice.reason for choice in choices if choice.field == "epochs"]
    assert (f"{classes} classes" in reason) == (classes > 15)


def test_balanced_class_weights_are_those_of_scikit_learn():
    from sklearn.utils.class_weight import compute_class_weight

    labels = ["a"] * 30 + ["b"] * 9 + ["c"]
    task, choices = Classification(labels=("a", "b", "c"), class_weights="balanced").fitted(labeled(labels), ())
    expected = compute_class_weight("balanced", classes=np.array(["a", "b", "c"]), y=labels)
    assert task.class_weights == pytest.approx(expected, rel=1e-3)
    assert [choice.field for choice in choices] == ["task.class_weights"]
    unweighted = Classification(labels=("a", "b"))
    assert unweighted.fitted(labeled(["a", "b"]), ()) == (unweighted, ())
    assert "class_weights" not in unweighted.to_json()


def test_steps_count_passes_or_are_given():
    settings = Hyperparameters(epochs=2.5, batch_size=8)
    assert settings.steps_of_epoch(20) == 3
    assert settings.total_steps(20) == 8  # round half to even of 7.5
    assert settings.replace(steps=5).total_steps(20) == 5
    assert Hyperparameters(epochs=0.01).total_steps(20) == 1


def test_the_system_is_the_chosen_one_or_that_of_the_recipe_or_family(tmp_path):
    model = SimpleNamespace(folder=tmp_path, family="electra")
    assert system_of(model, None) == "electra"
    (tmp_path / "recipe.json").write_text('{"name": "spanbert/base"}')
    assert (system_of(model, None), system_of(model, "macbert")) == ("spanbert", "macbert")
    with pytest.raises(RecipeError, match="Did you mean 'macbert'"):
        system_of(model, "macbart")


def test_a_system_without_settings_has_those_of_its_family(monkeypatch):
    assert [system_of(OTHER, name) for name in ("pmi", "roberta-wwm", "distilroberta", "modernbert")] == [
        "bert", "bert-wwm", "distilbert", "bert",
    ]  # fmt: skip
    recipe = catalog.get("electra/tiny").replace(name="tenth/tiny")
    monkeypatch.setattr(catalog, "_recipes", lambda: {"tenth/tiny": recipe})
    assert system_of(OTHER, "tenth") == "electra"


@pytest.mark.parametrize(
    ("system", "benchmark", "fields"),
    [("electra", "sts-b", {"scale": 5.0}), ("electra", "mnli", {}), ("bert", "sts-b", {}), ("electra", "", {})],
)
def test_electra_learns_sts_b_as_shares_of_five(system, benchmark, fields):
    assert published(system, "sequence", BENCHMARKS.get(benchmark), BASE)[1] == fields


@pytest.mark.parametrize(
    ("stride", "published_length", "length", "expected"),
    [
        (128, 384, 128, 43),
        (128, 512, 128, 32),
        (64, 384, 96, 16),
        (128, 384, 384, 128),
        (128, 384, 512, 128),
        (1, 384, 8, 1),
    ],
)
def test_windows_move_on_by_the_same_share_of_a_shorter_sequence(stride, published_length, length, expected):
    task, choices = fit_stride(QuestionAnswering(doc_stride=stride), published_length, length, ())
    assert task.doc_stride == expected
    assert [choice.field for choice in choices] == ["task.doc_stride"] * (expected != stride)


@pytest.mark.parametrize(
    ("labels", "offset", "scale"),
    [
        ((1000.0, 2000.0, 6000.0), 3000.0, 2160.0),
        ((2012.0, 2014.0, 2019.0), 2015.0, 2.94),
        ((123_446.0, 123_466.0), 123_456.0, 10.0),
        ((7.0,), 0.0, 1.0),
    ],
)
def test_numbers_are_learnt_around_0(labels, offset, scale):
    task, choices = Regression().fitted(labeled(labels), ())
    assert (task.offset, task.scale) == (offset, scale)
    assert [choice.field for choice in choices] == ["task.offset", "task.scale"] * (scale != 1.0)
    for fixed in ({"scale"}, {"offset"}):
        assert Regression().fitted(labeled(labels), fixed) == (Regression(), ())
