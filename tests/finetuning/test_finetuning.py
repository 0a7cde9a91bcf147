"""Fine-tuning from files to a measured model: it learns, resumes bit for bit, adds seeds, refuses what does not fit."""

import itertools
import json
import os
import re
import shutil
import signal
from dataclasses import replace

import pytest
import torch
import toy_tasks
from toy_tasks import QUICK

from damage import without_times
from maskwright.checkpoints import checkpoint
from maskwright.checkpoints.weight_files import read_weights
from maskwright.core.errors import CheckpointError, DataError, MaskwrightError, TrainingError
from maskwright.core.storage.checksums import read_record, write_record
from maskwright.finetuning.evaluate import evaluate
from maskwright.finetuning.finetune import finetune, make_plan
from maskwright.finetuning.labeled import LabeledRequest
from maskwright.finetuning.model.fine_tuned import build, load
from maskwright.finetuning.predict import predict
from maskwright.reporting.reporter import Reporter
from maskwright.training.pretrain import pretrain
from maskwright.training.ranks.device import Machine
from maskwright.training.runs import run
from maskwright.training.runs.run_directory import RunDirectory
from maskwright.training.start.existing import open_existing
from maskwright.training.steps import loop
from maskwright.training.steps.optimizer import Optimizer
from recording import Recorder

# The tiny models' weights are large: dropout is all that they would see in a few steps.
NO_DROPOUT = ("hidden_dropout=0", "attention_dropout=0", "head_dropout=0")
THOROUGH = ("learning_rate=5e-3", "batch_size=8", "epochs=8", "max_length=40", *NO_DROPOUT)


def read(file):
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.fixture
def tune(bert_folder, tmp_path):
    """Fine-tune the tiny model on texts about cats and dogs, into tmp_path/out."""

    def tuned(task="classification", *, set=(), **options):
        options = {"train": tmp_path / "texts.csv", "out": tmp_path / "out", "reporter": Reporter(), **options}
        if not (tmp_path / "texts.csv").exists():
            toy_tasks.texts(tmp_path)
        return finetune(bert_folder, task=task, device="cpu", set=(*QUICK, *set), **options)

    return tuned


@pytest.fixture(scope="module")
def trained_once(bert_folder, tmp_path_factory):
    """A folder with texts.csv and in "out" the fine-tuning of `tune()`, and its results."""
    folder = tmp_path_factory.mktemp("trained")
    options = {"train": toy_tasks.texts(folder), "out": folder / "out", "reporter": Reporter()}
    return folder, finetune(bert_folder, task="classification", device="cpu", set=QUICK, **options).results


@pytest.fixture
def first(trained_once, tmp_path):
    """The results of `tune()`, which has been called."""
    folder, results = trained_once
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return results


@pytest.fixture
def before_each_step(monkeypatch):
    """From the call on, call a function before each step of the optimizer."""
    real = Optimizer.step

    def use(hook):
        monkeypatch.setattr(Optimizer, "step", lambda *args, **kwargs: (hook(), real(*args, **kwargs))[1])

    return use


@pytest.fixture
def no_training(monkeypatch):
    """From the call on, training is an error."""

    def refuse(*_, **__):
        raise AssertionError("nothing is left to train")

    return lambda: monkeypatch.setattr(run, "train", refuse)


def test_a_model_learns_is_measured_and_saved(tune, bert_folder, tmp_path):
    dev = toy_tasks.texts(tmp_path, "dev.csv", offset=48, rows=24)
    test = toy_tasks.texts(tmp_path, "test.csv", offset=72, rows=20)
    results = tune(dev=dev, test=test, seeds=2, set=THOROUGH, reporter=(recorder := Recorder())).results
    assert results.main_metric == "accuracy"
    assert results.best.dev["accuracy"] > 0.9
    assert [row.seed for row in results.rows] == [0, 1]
    assert all(row.test is not None for row in results.rows)
    loaded = recorder.on("model")
    assert sum(text.startswith(f"loaded from {bert_folder}: embeddings, layers, pooler") for text in loaded) == 1
    assert any(text.startswith("newly initialized: head") for text in loaded)
    assert any("evaluating on dev: 100%" in line for line in recorder.progress)
    out = tmp_path / "out"
    assert read(out / "results.json") == json.loads(json.dumps(results.to_json()))
    page = (out / "results.md").read_text(encoding="utf-8")
    assert "| mean |" in page
    *simple, (name, frozen) = results.baselines.items()
    assert name == "frozen vectors + logistic regression"
    assert 0.5 < frozen["dev"]["accuracy"] < 1.0  # of a random encoder
    assert dict(simple) == {
        "majority class": {"dev": {"accuracy": 0.5}, "test": {"accuracy": 0.5}},
        "TF-IDF + logistic regression": {"dev": {"accuracy": 1.0}, "test": {"accuracy": 1.0}},
    }
    assert "| baseline: majority class | 0.5000 | 0.5000 |" in page
    card = (out / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: text-classification\n")
    assert "BertForSequenceClassification" in card
    assert "dev.csv" in card
    assert str(tmp_path) not in card
    assert not list(out.rglob("checkpoints"))
    again = evaluate(out, file=dev, device="cpu", reporter=(recorder := Recorder()))
    assert recorder.messages[0] == ("file", f"24 examples from {dev} (feline 12, canine 12)")
    assert again.metrics == results.best.dev
    assert (again.examples, again.skipped) == (24, 0)
    assert again.by_class["feline"]["examples"] == sum(again.confusion["feline"].values()) == 12
    predicted = predict(out, ["the cat sat on the mat", "the dog sat on the mat"], device="cpu", reporter=Reporter())
    assert [one.value for one in predicted] == ["feline", "canine"]
    (out / "task.json").unlink()
    evaluate(out, file=dev, reporter=(recorder := Recorder()))
    assert "task inferred from its class BertForSequenceClassification: classification" in recorder.text()


@pytest.mark.parametrize(
    ("options", "moments"),
    [
        ({"set": ["patience=1"]}, (2, 4)),
        ({"task": "question-answering", "set": ["max_length=40", "patience=1"]}, (3, 7)),
    ],
    ids=["seeds", "squad_v2"],
)
def test_a_killed_run_resumes_bit_for_bit(options, moments, tune, tmp_path, monkeypatch, before_each_step):
    toy_tasks.texts(tmp_path, rows=24)
    if "task" in options:
        file = toy_tasks.questions(tmp_path, impossible=True)
        options = {**options, "train": file, "dev": toy_tasks.again(file)}
    options = {**options, "seeds": 2, "checkpoint_minutes": 0}
    # On a GPU it depends on the memory, which may differ when a run resumes.
    sizes = itertools.count(64, 32)
    monkeypatch.setattr(Machine, "tokens_per_microbatch", lambda *_: next(sizes))
    tune(out=tmp_path / "whole" / "out", **options)
    sizes = itertools.count(64, 32)

    class Killed(BaseException):
        pass

    for moment in moments:
        left = itertools.count(moment, -1)

        def kill(left=left):
            if not next(left):
                raise Killed

        before_each_step(kill)
        with pytest.raises(Killed):
            tune(out=tmp_path / "killed" / "out", **options)
    before_each_step(lambda: None)
    tune(out=tmp_path / "killed" / "out", reporter=(recorder := Recorder()), **options)
    assert "resuming" in recorder.text()
    whole, killed = ((tmp_path / name / "out") for name in ("whole", "killed"))
    files = {str(file.relative_to(whole)) for file in whole.rglob("*") if file.is_file()}
    assert files == {str(file.relative_to(killed)) for file in killed.rglob("*") if file.is_file()}
    differing = [name for name in sorted(files) if without_times(whole / name) != without_times(killed / name)]
    assert differing in ([], ["run.json"])  # the command that was called


@pytest.mark.usefixtures("first")
def test_gradients_computed_before_an_evaluation_are_the_same(tune, tmp_path, monkeypatch):
    # As on a GPU, which is sent the next step's gradients before an epoch is evaluated.
    monkeypatch.setattr(loop, "skips_on_device", lambda *_: True)
    tune(out=tmp_path / "other" / "out")
    for name in ("model.safetensors", "results.json", "runs/seed-0/metrics.jsonl"):
        assert without_times(tmp_path / "out" / name) == without_times(tmp_path / "other" / "out" / name)


def test_a_stop_saves_and_the_same_call_resumes(tune, tmp_path, before_each_step):
    before_each_step(lambda: os.kill(os.getpid(), signal.SIGINT))
    stopped = tune()
    assert (stopped.finished, stopped.stopped_by, stopped.results) == (False, "SIGINT", None)
    assert list((tmp_path / "out" / "runs" / "seed-0" / "checkpoints").glob("step-*1"))
    before_each_step(lambda: None)
    assert tune().finished


def test_seconds_are_those_of_the_steps(tune, before_each_step, monkeypatch):
    real = run.train

    def timed(*args, **kwargs):
        return (replace(report, seconds=2.0) for report in real(*args, **kwargs))

    monkeypatch.setattr(run, "train", timed)
    before_each_step(lambda: os.kill(os.getpid(), signal.SIGINT))
    assert not tune().finished
    before_each_step(lambda: None)
    best = tune().results.best
    assert best.seconds == 2.0 * best.steps


def test_a_stop_between_baselines_ends_before_the_next(tune, monkeypatch):
    calls = []

    def interrupt(labeled, embed):
        for name in ("first", "second", "third"):
            calls.append(name)
            if len(calls) == 1:
                os.kill(os.getpid(), signal.SIGINT)
            yield name, lambda examples: [labeled.task.labels[0]] * len(examples)

    with monkeypatch.context() as patch:
        patch.setattr("maskwright.finetuning.baselines._baselines", interrupt)
        stopped = tune(seeds=1)
    assert (stopped.finished, stopped.stopped_by, calls) == (False, "SIGINT", ["first"])
    assert tune(seeds=1).finished


def test_baselines_are_measured_once_for_the_same_examples(first, tune, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("maskwright.finetuning.finetune.measure_baselines", lambda *_: pytest.fail("they are kept"))
        assert tune().results == first
    tested = tune(test=toy_tasks.texts(tmp_path, "test.csv", offset=7)).results
    assert all(scores.keys() == {"dev", "test"} for scores in tested.baselines.values())


def test_finished_seeds_are_kept_and_more_can_be_added(
    first, tune, bert_folder, tmp_path, before_each_step, no_training, monkeypatch
):
    record, states = tmp_path / "out" / "run.json", []
    assert read(record)["finished"]
    before_each_step(lambda: states.append({"finished", "best_seed"} & read(record).keys()))
    folders = []
    monkeypatch.setattr(checkpoint, "read_weights", lambda folder: folders.append(folder) or read_weights(folder))
    both = tune(seeds=2, reporter=(recorder := Recorder())).results
    assert folders.count(bert_folder) == 1
    assert states
    assert not any(states), "a folder is not called finished while further seeds train"
    assert "seed 0 already trained" in recorder.text()
    assert both.rows[0] == first.rows[0]
    weights = [(tmp_path / f"out/runs/seed-{seed}/model/model.safetensors").read_bytes() for seed in (0, 1)]
    assert weights[0] != weights[1]
    no_training()
    # All seeds in the folder are reported, also by a call that asks for fewer.
    assert tune(seeds=2).results == tune(seeds=1).results == both
    assert [seed["seed"] for seed in read(tmp_path / "out" / "results.json")["seeds"]] == [0, 1]


def test_non_finite_losses_are_errors(tune):
    with pytest.raises(TrainingError, match=r"--set learning_rate=\.\.\."):
        tune(set=["learning_rate=1e30", "clip_norm=0"])


def test_from_scratch_the_rate_is_that_of_short_pretraining(bert_folder, tmp_path):
    file = toy_tasks.texts(tmp_path)
    request = LabeledRequest.of(task="classification", files={"train": file, "dev": file}, columns={})
    existing = open_existing(str(bert_folder))
    plans = [make_plan(existing, request, Reporter(), from_scratch=from_scratch) for from_scratch in (True, False)]
    assert [plan.settings.learning_rate for plan in plans] == [4e-3, 1.2e-3]  # 1e-3 x 128 / 32; 5e-5 x 768 / 32
    assert plans[0].request["settings"]["epochs"] == plans[0].settings.epochs == 20.0


def test_texts_that_the_tokenizer_does_not_know_are_warned_of(bert_folder, tmp_path):
    existing, recorders = open_existing(str(bert_folder)), {"the cat sat": Recorder(), "兰州公交集团": Recorder()}
    for text, recorder in recorders.items():
        rows = [{"text": text, "label": label} for label in ("a", "b")]
        request = LabeledRequest.of(task="classification", files={"train": rows, "dev": rows}, columns={})
        make_plan(existing, request, recorder)
    assert [len(recorder.on("warning", "unknown to the model's tokenizer")) for recorder in recorders.values()] == [
        0,
        1,
    ]


def test_targets_of_a_benchmark_are_not_standardized(bert_folder):
    rows = [{"sentence1": "the cat", "sentence2": "a dog", "score": score} for score in (1.0, 4.0)]
    files, existing = {"train": rows, "dev": rows}, open_existing(str(bert_folder))
    requests = [LabeledRequest.of(task=task, files=files, columns={}) for task in ("sts-b", "regression")]
    assert [make_plan(existing, each, Reporter()).task.scale for each in requests] == [1.0, 1.5]


def test_a_model_is_trained_from_scratch(tune, bert_folder, tmp_path):
    results = tune(from_scratch=True, reporter=(recorder := Recorder())).results
    assert results.from_scratch
    assert list(results.baselines) == ["majority class", "TF-IDF + logistic regression"]
    assert "all weights are newly initialized" in recorder.text()
    out = tmp_path / "out"
    assert read(out / "run.json")["request"]["from_scratch"]
    assert read(out / "results.json")["from_scratch"]
    assert "from scratch" in (out / "README.md").read_text(encoding="utf-8")
    with pytest.raises(CheckpointError, match="from_scratch was True, now False"):
        tune()
    fresh = build(bert_folder, load(out).task, seed=0, from_scratch=True).encoder.word_embeddings.weight
    trained = load(out).encoder.word_embeddings.weight
    # Rows of words that no text has are only decayed by the optimizer.
    assert torch.corrcoef(torch.stack([fresh.flatten(), trained.flatten()]))[0, 1] > 0.9


def test_the_test_file_can_be_added_and_changed_once_all_is_trained(first, tune, tmp_path, no_training):
    no_training()
    file = toy_tasks.texts(tmp_path, "test.csv", rows=8)
    measured = tune(test=file).results
    assert [row.dev for row in measured.rows] == [row.dev for row in first.rows]
    # With the labels swapped every right answer is wrong.
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("feline", "x").replace("canine", "feline").replace(",x", ",canine"), encoding="utf-8")
    turned = tune(test=file).results
    assert [row.test for row in turned.rows] == [{"accuracy": 1 - row.test["accuracy"]} for row in measured.rows]
    # Rows without a label are left out; without any label there are predictions only.
    file.write_text(text + '"the cat",\n"the dog",\n', encoding="utf-8")
    partly = tune(test=file, reporter=(recorder := Recorder())).results
    assert [row.test for row in partly.rows] == [row.test for row in measured.rows]
    assert (partly.data["test"]["examples"], partly.data["test"]["skipped"]) == (8, 2)
    assert "2 of the 10 examples of " in recorder.text()
    unlabeled = tune(test=toy_tasks.texts(tmp_path, "test.csv", rows=4, labeled=False)).results
    assert unlabeled.spread("test") == {}
    assert any("no labels" in note for note in unlabeled.notes)
    lines = (tmp_path / "out/runs/seed-0/test_predictions.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4
    assert tune().results == first


def test_classes_are_weighted_and_numbers_as_labels_reported(tune, tmp_path):
    rows = [f"the {('cat', 'dog')[number % 8 == 0]} sat,{int(number % 8 == 0)}" for number in range(48)]
    file = tmp_path / "numbered.csv"
    file.write_text("\n".join(["text,label", *rows, ""]), encoding="utf-8")
    options = {"train": file, "dev": toy_tasks.again(file)}
    results = tune(
        set=["task.class_weights=balanced", "epochs=1"], reporter=(recorder := Recorder()), **options
    ).results
    assert results.task_settings["class_weights"] == [0.5714, 4.0]
    assert 'name them for the model\'s users: `--read "label_names=[[0, NAME], [1, NAME]]"`' in recorder.text()
    weights = (tmp_path / "out/model.safetensors").read_bytes()
    named = {"read": ["label_names=[[0, feline], [1, canine]]"], "out": tmp_path / "named"}
    tune(set=["task.class_weights=[4.0, 0.5714]", "epochs=1"], reporter=(recorder := Recorder()), **named, **options)
    assert "label_names" not in recorder.text()
    assert load(tmp_path / "named").task.labels == ("canine", "feline")
    assert (tmp_path / "named/model.safetensors").read_bytes() != weights


def test_training_ends_when_dev_gets_worse(tune):
    results = tune(set=["epochs=30", "patience=2", "learning_rate=2e-2"], reporter=(recorder := Recorder())).results
    assert "seed 0 early: no improvement in 2 epochs" in recorder.text()
    steps, best = results.rows[0].steps, results.rows[0].best_epoch
    assert steps == (best + 2) * 6 < 30 * 6


@pytest.mark.parametrize(
    ("task", "make", "columns", "least", "baselines"),
    [
        (
            "regression",
            toy_tasks.numbers,
            {"text": "a", "text2": "b", "label": "score"},
            0.9,
            ["mean", "TF-IDF + ridge regression", "frozen vectors + ridge regression", "TF-IDF cosine"],
        ),
        (
            "multi-label",
            toy_tasks.several,
            {},
            0.9,
            ["majority set", "TF-IDF + logistic regression", "frozen vectors + logistic regression"],
        ),
        ("tagging", toy_tasks.tagged, {}, 0.9, ["majority tag", "most frequent tag of each word"]),
        ("question-answering", toy_tasks.questions, {}, 90.0, []),
        ("multiple_choice", toy_tasks.choices, {}, 0.9, ["majority option"]),
    ],
)
def test_every_kind_of_task_learns(task, make, columns, least, baselines, tune, tmp_path):
    file, out = make(tmp_path), tmp_path / "out"
    settings = (*THOROUGH, "epochs=16") if task == "regression" else THOROUGH
    results = tune(task, train=file, dev=toy_tasks.again(file), set=settings, **columns).results
    assert results.best.dev[results.main_metric] >= least, results.rows
    assert list(results.baselines) == baselines
    assert all(scores["dev"].keys() == results.best.dev.keys() for scores in results.baselines.values())
    again = evaluate(out, file=file, device="cpu", reporter=Reporter(), **columns)
    assert again.metrics == results.best.dev
    columns.pop("label", None)
    predictions = predict(out, file=file, device="cpu", reporter=Reporter(), **columns)
    assert len(predictions) == again.examples
    json.dumps([prediction.value for prediction in predictions])
    if task == "tagging":
        # The words with tags are always the same.
        assert results.baselines["majority tag"]["dev"]["f1"] == 0.0
        assert results.baselines["most frequent tag of each word"]["dev"]["recall"] == 1.0
        assert again.by_class.keys() == {"LOC", "PER"}
        assert 'aggregation_strategy="first"' in (out / "README.md").read_text(encoding="utf-8")
        text = " 我 爱北京 "
        [prediction] = predict(out, text, device="cpu", reporter=Reporter())
        actual = {(one["label"], one["start"], one["end"], one["text"]) for one in prediction.details["entities"]}
        assert actual == {("PER", 1, 2, "我"), ("LOC", 4, 6, "北京")}
        assert prediction.score is None
        assert all(0.5 < one["score"] <= 1 for one in prediction.details["entities"])


def test_numbers_are_standardized_and_the_saved_model_predicts_in_their_unit(tune, tmp_path):
    lines = [f"the {('dog', 'cat')[number % 2]} sat,{(-250_000, 750_000)[number % 2]}" for number in range(32)]
    file = tmp_path / "prices.csv"
    file.write_text("\n".join(["text,price", *lines]) + "\n", encoding="utf-8")
    dev, out = toy_tasks.again(file), tmp_path / "out"
    results = tune("regression", train=file, dev=dev, set=(*THOROUGH, "epochs=20")).results
    assert {"task.offset", "task.scale"} <= {choice["field"] for choice in read(out / "run.json")["fitted"]}
    assert results.task_settings == {"offset": 250_000.0, "scale": 500_000.0}
    assert results.best.dev["mean_absolute_error"] < 50_000
    again = predict(out, ["the dog sat", "the cat sat"], device="cpu", reporter=Reporter())
    assert [one.value for one in again] == pytest.approx([-250_000, 750_000], abs=50_000)
    kept = read(out / "task.json")
    assert (kept.get("offset", 0.0), kept["scale"]) == (0.0, 1.0)
    assert "| task.scale | 500000.0 |" in (out / "results.md").read_text(encoding="utf-8")
    # The saved model, with the unit in its last layer, gives the predictions that were measured.
    written = tmp_path / "predictions.jsonl"
    measured = evaluate(out, file=dev, out=written, device="cpu", reporter=Reporter())
    assert written.read_bytes() == (out / "runs" / "seed-0" / "dev_predictions.jsonl").read_bytes()
    assert measured.metrics == results.best.dev


def test_pairs_in_both_orders_are_twice_as_many(tune, tmp_path):
    file = toy_tasks.numbers(tmp_path, rows=16)
    options = {"train": file, "dev": toy_tasks.again(file), "text": "a", "text2": "b"}
    for both, steps in (("false", 2), ("true", 4)):
        settings = ("epochs=1", "max_length=8", f"double_unordered={both}")
        results = tune("regression", out=tmp_path / both, set=settings, **options).results
        assert results.rows[0].steps == steps
        assert results.data["train"]["truncated"] == 16  # a truncated pair is one example, in either order


def test_leaked_texts_small_files_and_truncation_are_reported(tune, tmp_path):
    dev = tmp_path / "dev.csv"
    dev.write_text(f"text,label\nthe cat,feline\nthe dog sat,canine\n{'the dog ' * 20},canine\n", encoding="utf-8")
    test = tmp_path / "test.csv"
    test.write_text("text,label\nthe tree,feline\nthe cat sat on the mat,feline\n", encoding="utf-8")
    results = tune(dev=dev, test=test, reporter=(recorder := Recorder())).results
    expected = (
        ("dev", "1 of 3 inputs also in train; 3 examples, each 33 % of the score"),
        ("test", "1 of 2 inputs also in train; 2 examples, each 50 % of the score"),
    )
    assert results.notes == tuple(f"{part}: {text}." for part, text in expected)
    assert set(expected) <= set(recorder.messages)
    for page in ("results.md", "README.md"):
        assert f"\n{results.notes[1]}\n" in (tmp_path / "out" / page).read_text(encoding="utf-8")
    assert read(tmp_path / "out" / "results.json")["notes"] == list(results.notes)
    (message,) = recorder.on("truncated")
    assert message.startswith("1 of 3 dev examples have more than 32 tokens")
    assert "`--set max_length=40`" in message
    tune(dev=dev, reporter=(recorder := Recorder()), set=["max_length=8"], out=tmp_path / "short")
    (message,) = recorder.on("truncated")
    assert re.match(r"\d+ of 48 train, 1 of 3 dev examples have more than 8 tokens", message)
    topics = [topic for topic, text in recorder.messages if topic == "truncated" or "epoch 1" in text]
    assert topics.index("truncated") < topics.index("dev")  # before training


def test_the_length_of_sequences_follows_the_texts_unless_it_is_set(bert_folder, tmp_path):
    rows = [{"text": f"the {animal} " * count, "label": animal} for count in (2, 5, 70) for animal in ("cat", "dog")]
    request = LabeledRequest.of(task="classification", files={"train": rows, "dev": rows[:2]}, columns={})
    existing = replace(open_existing(str(bert_folder)), max_length=300)
    options = ({}, {"as_published": True}, {"overrides": [("max_length", 16)]})
    plans = [make_plan(existing, request, Reporter(), **each) for each in options]
    assert [plan.settings.max_length for plan in plans] == [160, 128, 16]
    assert [len(plan.data.train.truncated) for plan in plans] == [0, 2, 2]


@pytest.mark.usefixtures("first")
def test_another_request_in_the_folder_is_refused_with_what_differs(tune, tmp_path):
    with pytest.raises(CheckpointError, match=r"settings.learning_rate was 0.005, now 0.001"):
        tune(set=["learning_rate=1e-3"])
    toy_tasks.texts(tmp_path, rows=20)
    with pytest.raises(CheckpointError, match=r"data.train was '44 examples .*now '15 examples"):
        tune()


def test_a_record_without_a_setting_has_its_default(first, tune, tmp_path, no_training):
    record = read_record(tmp_path / "out" / "run.json")
    del record["request"]["settings"]["frozen"]  # As an earlier version wrote it.
    write_record(tmp_path / "out" / "run.json", record)
    no_training()
    assert tune().results == first


@pytest.mark.usefixtures("first")
def test_models_and_other_files_are_not_overwritten(tune, bert_folder, tmp_path):
    saved = tmp_path / "mine"
    shutil.copytree(bert_folder, saved)
    before = (saved / "model.safetensors").read_bytes()
    options = {"task": "classification", "train": tmp_path / "texts.csv", "reporter": Reporter()}
    with pytest.raises(CheckpointError, match="the model to fine-tune"):
        finetune(saved, out=tmp_path / "elsewhere" / ".." / "mine", **options)
    # A finished pretraining whose checkpoints were removed.
    RunDirectory(saved).write_record({"request": {}, "result": {"finished": True}})
    with pytest.raises(CheckpointError, match="the model to fine-tune"):
        finetune(saved, out=saved, **options)
    with pytest.raises(CheckpointError, match="holds a pretraining, and a fine-tuning would write its own model"):
        tune(out=saved)
    assert (saved / "model.safetensors").read_bytes() == before
    assert not (saved / "runs").exists()
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"thesis\.txt"):
        tune(out=tmp_path / "thesis")
    with pytest.raises(CheckpointError, match="holds a fine-tuning, and a pretraining would write its own model"):
        pretrain(tmp_path / "texts.csv", out=tmp_path / "out", steps=1, reporter=Reporter())
    assert tune().finished


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "sst2x"}, "Did you mean 'sst-2'"),
        ({"set": ["learning_rat=1"]}, "Did you mean 'learning_rate'"),
        ({"set": ["lr=1e-4"]}, "Did you mean 'learning_rate'"),
        ({"set": ["task.metrics=[acuracy]"]}, "must be 'accuracy'"),
        ({"set": ["task.metric=accuracy"]}, "did you mean 'metrics'"),
        ({"read": ["quotin=none"]}, "Did you mean 'quoting'"),
        ({"read": ["quoting=maybe"]}, "quoting"),
        ({"seeds": 0}, "--seeds is 0"),
        ({"text": "txt"}, "Did you mean 'text'"),
        ({"label": "lable"}, "Did you mean 'label'"),
        ({"train": None}, "no data was given"),
        ({"data": "folder"}, "--data names a benchmark's folder"),
        ({"set": ["max_length=400"]}, "40 positions"),
    ],
)
def test_mistakes_are_reported_before_anything_is_trained(options, message, tune, tmp_path):
    with pytest.raises(MaskwrightError, match=message):
        tune(**options)
    assert not list(tmp_path.glob("out/runs/**/model"))


@pytest.mark.parametrize(
    ("part", "task", "make", "bad", "message"),
    [
        ("dev", "classification", toy_tasks.texts, "text,label\nthe cat,feline\na,canin\n", "Did you mean 'canine'"),
        ("dev", "regression", toy_tasks.numbers, "a\tb\tscore\nthe cat\tthe dog\t1\n", "all numbers are equal"),
        ("test", "tagging", toy_tasks.tagged, "我\tB-PER\n爱\tX-PER\n\n", "'X-PER' is not a tag"),
        (
            "test",
            "question-answering",
            toy_tasks.questions,
            '{"data": [{"paragraphs": [{"context": "the cat", "qas": '
            '[{"id": "7", "question": "who", "answers": [], "is_impossible": true}]}]}]}',
            "question 7 has no answer",
        ),
    ],
)
def test_examples_that_cannot_be_measured_are_refused_before_training(part, task, make, bad, message, tune, tmp_path):
    file = make(tmp_path)
    other = tmp_path / f"other{file.suffix}"
    other.write_text(bad, encoding="utf-8")
    columns = {"text": "a", "text2": "b", "label": "score"} if task == "regression" else {}
    with pytest.raises(DataError, match=message):
        tune(task, **{"train": file, "dev": toy_tasks.again(file), part: other, **columns})
    assert not (tmp_path / "out").exists()
