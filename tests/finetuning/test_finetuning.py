"""Fine-tuning from files to a measured model: it learns, resumes bit for bit, adds seeds, refuses what does not fit."""

import itertools
import json
import math
import os
import re
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_tasks

from maskwright.core.errors import CheckpointError, DataError, DeviceError, MaskwrightError, RecipeError, TrainingError
from maskwright.finetuning import finetuning, seed_run
from maskwright.finetuning.evaluating import evaluate
from maskwright.finetuning.fine_tuned import build, load
from maskwright.finetuning.finetuning import FineTuning, finetune
from maskwright.finetuning.labeled import LabeledRequest, read_labeled
from maskwright.finetuning.plan import make_plan
from maskwright.finetuning.predicting import predict
from maskwright.finetuning.seed_run import read_result
from maskwright.training.device import Machine
from maskwright.training.existing import open_existing
from maskwright.training.optimizer import Optimizer
from maskwright.training.pretrain import pretrain
from maskwright.training.reporting import Silent

QUICK = ("learning_rate=5e-3", "batch_size=8", "epochs=2", "max_length=32")
# The tiny models' weights are large: dropout is all that they would see in a few steps.
NO_DROPOUT = ("hidden_dropout=0", "attention_dropout=0", "head_dropout=0")
THOROUGH = ("learning_rate=5e-3", "batch_size=8", "epochs=8", "max_length=40", *NO_DROPOUT)


class Heard(Silent):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.shown: list[str] = []

    def say(self, topic: str, text: str) -> None:
        self.said.append((topic, text))

    def stage(self, name: str, done: int, total: int | None) -> None:
        self.shown.append(f"{name} {done} of {total}")

    def training(self, share: float, text: str) -> None:
        assert 0 <= share <= 1
        self.shown.append(text)

    def text(self) -> str:
        return "\n".join(f"{topic} {text}" for topic, text in self.said)


@pytest.fixture
def tune(bert_folder: Path, tmp_path: Path) -> Callable[..., FineTuning]:
    """Fine-tune the tiny model on texts about cats and dogs, into tmp_path/out."""

    def tuned(task: str = "classification", *, set: Sequence[str] = (), **asked: Any) -> FineTuning:
        asked = {"train": tmp_path / "texts.csv", "out": tmp_path / "out", "reporter": Silent(), **asked}
        if not (tmp_path / "texts.csv").exists():
            toy_tasks.texts(tmp_path)
        return finetune(bert_folder, task=task, device="cpu", set=(*QUICK, *set), **asked)

    return tuned


def test_a_model_learns_is_measured_and_lies_ready(tune: Callable[..., FineTuning], tmp_path: Path) -> None:
    dev = toy_tasks.texts(tmp_path, "dev.csv", offset=48, rows=24)
    test = toy_tasks.texts(tmp_path, "test.csv", offset=72, rows=20)
    done = tune(dev=dev, test=test, seeds=2, set=THOROUGH)
    assert done.finished
    results = done.results
    assert results is not None
    assert results.main_metric == "accuracy"
    assert results.best.dev["accuracy"] > 0.9
    assert [row.seed for row in results.rows] == [0, 1]
    assert all(row.test is not None for row in results.rows)
    out = tmp_path / "out"
    assert json.loads((out / "results.json").read_text(encoding="utf-8")) == json.loads(json.dumps(results.to_json()))
    assert "| mean |" in (out / "results.md").read_text(encoding="utf-8")
    card = (out / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: text-classification\n")
    assert "BertForSequenceClassification" in card
    assert str(dev) in card
    assert load(out).task.labels == ("canine", "feline")
    assert not list(out.rglob("checkpoints"))
    again = evaluate(out, file=dev, device="cpu", reporter=(heard := Heard()))
    assert heard.said[0] == ("file", f"24 examples from {dev} (feline 12, canine 12)")
    assert again.metrics == results.best.dev
    assert (again.examples, again.skipped) == (24, 0)
    predicted = predict(out, ["the cat sat on the mat", "the dog sat on the mat"], device="cpu", reporter=Silent())
    assert [one.value for one in predicted] == ["feline", "canine"]


@pytest.mark.parametrize(
    ("asked", "moments"),
    [
        ({}, (3, 7)),
        ({"grid": ["batch_size=4,8"], "set": ["patience=1"]}, (3, 9, 7)),
        ({"task": "question-answering", "set": ["max_length=40", "patience=1"]}, (3, 7)),
    ],
    ids=["classification", "grid", "squad_v2"],
)
def test_a_killed_run_goes_on_bit_for_bit(
    asked: dict[str, Any],
    moments: tuple[int, ...],
    tune: Callable[..., FineTuning],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for folder in ("peace", "killed"):
        (tmp_path / folder).mkdir()
    if "task" in asked:
        file = toy_tasks.questions(tmp_path, impossible=True)
        asked = {**asked, "train": file, "dev": toy_tasks.again(file)}
    asked = {**asked, "seeds": 2, "checkpoint_minutes": 0}
    # On a GPU so many tokens are computed at once as its memory has room for: another number at each look.
    rooms = itertools.count(64, 32)
    monkeypatch.setattr(Machine, "tokens_per_microbatch", lambda *_: next(rooms))
    tune(out=tmp_path / "peace" / "out", **asked)
    rooms = itertools.count(64, 32)

    class Killed(BaseException):
        pass

    whole = Optimizer.step
    for moment in moments:
        left = [moment]

        def step(*given: Any, left: list[int] = left, **named: Any) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return whole(*given, **named)

        monkeypatch.setattr(Optimizer, "step", step)
        with pytest.raises(Killed):
            tune(out=tmp_path / "killed" / "out", **asked)
    monkeypatch.setattr(Optimizer, "step", whole)
    heard = Heard()
    tune(out=tmp_path / "killed" / "out", reporter=heard, **asked)
    assert "from step" in heard.text()
    peace, killed = ((tmp_path / name / "out") for name in ("peace", "killed"))
    files = {str(file.relative_to(peace)) for file in peace.rglob("*") if file.is_file()}
    assert files == {str(file.relative_to(killed)) for file in killed.rglob("*") if file.is_file()}
    # run.json of the whole tells times and the command.
    differing = [name for name in sorted(files) if (peace / name).read_bytes() != (killed / name).read_bytes()]
    assert differing in ([], ["run.json"])


def test_a_stop_saves_and_the_same_call_goes_on(
    tune: Callable[..., FineTuning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Optimizer.step

    def step(*given: Any, **named: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        return whole(*given, **named)

    monkeypatch.setattr(Optimizer, "step", step)
    stopped = tune()
    assert (stopped.finished, stopped.stopped_by, stopped.results) == (False, "SIGINT", None)
    assert list((tmp_path / "out" / "runs" / "seed-0" / "checkpoints").glob("step-*1"))
    monkeypatch.setattr(Optimizer, "step", whole)
    assert tune().finished


def test_finished_seeds_are_not_repeated_and_more_can_be_added(
    tune: Callable[..., FineTuning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tune(seeds=1).results
    heard = Heard()
    both = tune(seeds=2, reporter=heard).results
    assert "seed 0 already trained" in heard.text()
    assert first is not None
    assert both is not None
    assert both.rows[0] == first.rows[0]
    assert len(both.rows) == 2
    weights = [(tmp_path / f"out/runs/seed-{seed}/model/model.safetensors").read_bytes() for seed in (0, 1)]
    assert weights[0] != weights[1]

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is left to train")

    monkeypatch.setattr(seed_run, "train", refuse)
    repeated = tune(seeds=2).results
    assert repeated == both
    # What the folder holds is told, also by a call that asks for less.
    assert tune(seeds=1).results == both
    assert json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["seeds"][1]["seed"] == 1


def test_a_folder_is_not_called_finished_while_further_seeds_train(
    tune: Callable[..., FineTuning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(seeds=1)
    record = tmp_path / "out" / "run.json"
    assert json.loads(record.read_text(encoding="utf-8"))["finished"]
    seen = []
    whole = Optimizer.step

    def step(*given: Any, **named: Any) -> None:
        seen.append({"finished", "best_seed"} & json.loads(record.read_text(encoding="utf-8")).keys())
        return whole(*given, **named)

    monkeypatch.setattr(Optimizer, "step", step)
    tune(seeds=2)
    assert seen
    assert not any(seen)
    assert json.loads(record.read_text(encoding="utf-8"))["finished"]


def test_the_grid_is_chosen_on_dev_with_the_first_seed(tune: Callable[..., FineTuning], tmp_path: Path) -> None:
    file = toy_tasks.texts(tmp_path)
    results = tune(
        dev=toy_tasks.again(file), grid=["learning_rate=1e-9,5e-3"], set=["epochs=4", *NO_DROPOUT], seeds=2
    ).results
    assert results is not None
    assert [(row.values["learning_rate"], row.chosen) for row in results.grid] == [(1e-9, False), (5e-3, True)]
    assert results.grid[0].dev < results.grid[1].dev
    assert results.settings["learning_rate"] == 5e-3
    runs = tmp_path / "out" / "runs"
    assert sorted(str(found.relative_to(runs)) for found in runs.glob("*/seed-*")) == [
        "learning_rate=0.005/seed-0",
        "learning_rate=0.005/seed-1",
        "learning_rate=1e-09/seed-0",
    ]
    assert "## Grid" in (tmp_path / "out" / "results.md").read_text(encoding="utf-8")


def test_a_point_whose_loss_is_no_number_is_the_worst_and_is_not_tried_again(
    tune: Callable[..., FineTuning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"grid": ["learning_rate=1e30,5e-3"], "set": ["clip_norm=0"]}
    results = tune(**asked, reporter=(heard := Heard())).results
    assert results is not None
    assert "learning_rate=1e+30 seed 0 failed and counts as the worst" in heard.text()
    assert [(row.dev is None, row.chosen) for row in results.grid] == [(True, False), (False, True)]
    assert results.settings["learning_rate"] == 5e-3
    assert "| 1e+30 | failed |" in (tmp_path / "out" / "results.md").read_text(encoding="utf-8")

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is left to train")

    monkeypatch.setattr(seed_run, "train", refuse)
    assert tune(**asked).results == results


def test_a_grid_of_which_no_point_can_be_trained_is_an_error(tune: Callable[..., FineTuning]) -> None:
    with pytest.raises(TrainingError, match="training failed at every grid point"):
        tune(grid=["learning_rate=1e30,1e29"], set=["clip_norm=0"])


def test_each_point_of_a_grid_is_fitted_to_its_own_batch(
    tune: Callable[..., FineTuning], bert_folder: Path, tmp_path: Path
) -> None:
    existing = open_existing(str(bert_folder))
    files = {"train": toy_tasks.texts(tmp_path), "dev": toy_tasks.texts(tmp_path, "dev.csv")}
    request = LabeledRequest.of(task="classification", files=files, columns={})
    labeled = read_labeled(request, {}, Silent())
    made = make_plan(
        existing, labeled, [], ["batch_size=1,4,48"], system="bert", as_published=False, from_scratch=False
    )
    # 300 steps at least: 48, 12 and 1 steps an epoch; no more than 20 epochs.
    assert [point.settings.epochs for point in made.points] == [7.0, 20.0, 20.0]
    assert made.request["settings"]["epochs"] == {"batch_size=1": 7.0, "batch_size=4": 20.0, "batch_size=48": 20.0}
    assert made.request["settings"]["bias_correction"] is True
    assert "48 steps per epoch" in made.choices[[choice.field for choice in made.choices].index("epochs")].reason


def test_what_is_fitted_counts_windows_and_not_questions(bert_folder: Path, tmp_path: Path) -> None:
    existing = open_existing(str(bert_folder))
    file = toy_tasks.questions(tmp_path)
    request = LabeledRequest.of(task="question-answering", files={"train": file, "dev": file}, columns={})
    labeled = read_labeled(request, {"doc_stride": 2}, Silent())
    made = make_plan(
        existing,
        labeled,
        [("max_length", 12), ("batch_size", 4)],
        [],
        system="bert",
        as_published=False,
        from_scratch=False,
        own_of_task=("doc_stride",),
    )
    (point,) = made.points
    settings = point.settings
    windows = made.data(point.task, settings).train.num_units
    assert windows > 2 * len(labeled.train.examples)
    assert settings.epochs == max(3.0, min(20.0, math.ceil(300 / math.ceil(windows / 4))))


def test_from_scratch_the_rate_is_that_of_a_model_that_has_seen_nothing(bert_folder: Path, tmp_path: Path) -> None:
    existing = open_existing(str(bert_folder))
    file = toy_tasks.texts(tmp_path)
    request = LabeledRequest.of(task="classification", files={"train": file, "dev": file}, columns={})
    labeled = read_labeled(request, {}, Silent())
    rates = [
        make_plan(existing, labeled, [], [], system="bert", as_published=False, from_scratch=scratch)
        .points[0]
        .settings.learning_rate
        for scratch in (True, False)
    ]
    assert rates == [4e-3, 1.2e-3]  # 1e-3 x 128 / 32; 5e-5 x 768 / 32


def test_a_model_is_trained_from_scratch_and_that_is_told(
    tune: Callable[..., FineTuning], bert_folder: Path, tmp_path: Path
) -> None:
    results = tune(from_scratch=True, reporter=(heard := Heard())).results
    assert results is not None
    assert results.from_scratch
    assert "all weights are newly initialized" in heard.text()
    assert "from scratch" in heard.text()
    out = tmp_path / "out"
    assert json.loads((out / "run.json").read_text(encoding="utf-8"))["request"]["from_scratch"]
    assert json.loads((out / "results.json").read_text(encoding="utf-8"))["from_scratch"]
    assert "from scratch" in (out / "README.md").read_text(encoding="utf-8")
    with pytest.raises(CheckpointError, match="from_scratch was True, now False"):
        tune()
    fresh = build(bert_folder, load(out).task, seed=0, from_scratch=True).encoder.word_embeddings.weight
    trained = load(out).encoder.word_embeddings.weight
    # Rows of words that no text has are decayed by the optimizer, no more.
    assert torch.corrcoef(torch.stack([fresh.flatten(), trained.flatten()]))[0, 1] > 0.9


def test_without_dev_a_share_of_train_is_held_out_and_said(tune: Callable[..., FineTuning]) -> None:
    heard = Heard()
    results = tune(reporter=heard).results
    assert results is not None
    # Each text stands there twice, and stays on one side.
    assert (results.data["train"]["examples"], results.data["dev"]["examples"]) == (44, 4)
    assert "4 of the 48 training examples are held out for it (8%" in heard.text()
    assert any("held out" in note for note in results.notes)


def test_an_unlabeled_test_file_gives_predictions_and_no_score(tune: Callable[..., FineTuning], tmp_path: Path) -> None:
    test = toy_tasks.texts(tmp_path, "test.csv", rows=4, labeled=False)
    results = tune(test=test).results
    assert results is not None
    assert results.spread("test") == {}
    assert any("no labels" in note for note in results.notes)
    lines = (tmp_path / "out/runs/seed-0/test_predictions.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4


def test_a_blank_label_in_a_test_file_costs_its_row_only(tune: Callable[..., FineTuning], tmp_path: Path) -> None:
    test = toy_tasks.texts(tmp_path, "test.csv", rows=8)
    test.write_text(test.read_text(encoding="utf-8") + '"the cat",\n"the dog",\n', encoding="utf-8")
    results = tune(test=test, reporter=(heard := Heard())).results
    assert results is not None
    assert results.spread("test")["accuracy"].mean in {number / 8 for number in range(9)}
    assert (results.data["test"]["examples"], results.data["test"]["skipped"]) == (8, 2)
    assert "2 of the 10 test examples have no label" in heard.text()
    assert any("2 of the 10 test examples" in note for note in results.notes)


def test_a_test_file_can_be_added_and_changed_once_all_is_trained(
    tune: Callable[..., FineTuning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tune(seeds=2).results
    assert first is not None

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is left to train")

    monkeypatch.setattr(seed_run, "train", refuse)
    file = toy_tasks.texts(tmp_path, "test.csv", rows=8)
    measured = tune(seeds=2, test=file).results
    assert measured is not None
    assert [row.dev for row in measured.rows] == [row.dev for row in first.rows]
    before = [row.test for row in measured.rows]
    # The other way round every answer that was right is wrong.
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("feline", "x").replace("canine", "feline").replace(",x", ",canine"), encoding="utf-8")
    turned = tune(seeds=2, test=file).results
    assert turned is not None
    assert [row.test for row in turned.rows] == [{"accuracy": 1 - row["accuracy"]} for row in before if row]
    assert tune(seeds=2).results == first


def test_a_stop_while_testing_is_heeded_and_progress_is_shown(
    tune: Callable[..., FineTuning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = finetuning.measure_test
    asked: list[str] = []

    def measure(folder: Path, *given: Any) -> Any:
        asked.append(folder.name)
        os.kill(os.getpid(), signal.SIGINT)
        return whole(folder, *given)

    monkeypatch.setattr(finetuning, "measure_test", measure)
    file = toy_tasks.texts(tmp_path, "test.csv", rows=8)
    stopped = tune(test=file, seeds=2)
    assert (stopped.finished, stopped.stopped_by, stopped.results, asked) == (False, "SIGINT", None, ["seed-0"])
    assert "finished" not in json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))
    monkeypatch.setattr(finetuning, "measure_test", whole)
    done = tune(test=file, seeds=2, reporter=(heard := Heard()))
    assert done.results is not None
    assert len(done.results.rows) == 2
    assert any(line.startswith("scoring") for line in heard.shown)


def test_what_was_taken_over_and_what_was_guessed_is_told(
    tune: Callable[..., FineTuning], bert_folder: Path, tmp_path: Path
) -> None:
    tune(seeds=2, reporter=(heard := Heard()))
    told = [text for topic, text in heard.said if topic == "model"]
    assert sum(text.startswith(f"loaded from {bert_folder}: embeddings, layers, pooler") for text in told) == 1
    assert any(text.startswith("newly initialized: head") for text in told)
    assert any("evaluating on dev: 100%" in line for line in heard.shown)
    (tmp_path / "out" / "task.json").unlink()
    evaluate(tmp_path / "out", file=tmp_path / "texts.csv", reporter=(heard := Heard()))
    assert "task inferred from its class BertForSequenceClassification: classification" in heard.text()
    predict(tmp_path / "out", "the cat", reporter=(heard := Heard()))
    assert "has no task.json" in heard.text()


def test_the_test_file_is_asked_only_once_all_is_chosen(
    tune: Callable[..., FineTuning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    whole = finetuning.measure_test

    def measure(folder: Path, *given: Any) -> Any:
        assert all(read_result(tmp_path / "out" / "runs" / f"seed-{seed}") for seed in (0, 1))
        asked.append(folder.name)
        return whole(folder, *given)

    monkeypatch.setattr(finetuning, "measure_test", measure)
    tune(test=toy_tasks.texts(tmp_path, "test.csv", rows=8), seeds=2)
    assert asked == ["seed-0", "seed-1"]


def test_training_ends_when_nothing_gets_better(tune: Callable[..., FineTuning]) -> None:
    results = tune(set=["epochs=30", "patience=2", "learning_rate=2e-2"]).results
    assert results is not None
    steps, best = results.rows[0].steps, results.rows[0].best_epoch
    assert steps == (best + 2) * 6 < 30 * 6


@pytest.mark.parametrize(
    ("task", "make", "columns", "least"),
    [
        ("regression", toy_tasks.numbers, {"text": "a", "text2": "b", "label": "score"}, 0.9),
        ("multi-label", toy_tasks.several, {}, 0.9),
        ("tagging", toy_tasks.tagged, {}, 0.9),
        ("question-answering", toy_tasks.questions, {}, 90.0),
        ("multiple_choice", toy_tasks.choices, {}, 0.9),
    ],
)
def test_every_kind_of_task_learns(
    task: str,
    make: Callable[[Path], Path],
    columns: dict[str, str],
    least: float,
    bert_folder: Path,
    tmp_path: Path,
) -> None:
    file = make(tmp_path)
    done = finetune(
        bert_folder,
        task=task,
        train=file,
        dev=toy_tasks.again(file),
        out=tmp_path / "out",
        device="cpu",
        set=THOROUGH,
        reporter=Silent(),
        **columns,
    )
    assert done.results is not None
    assert done.results.best.dev[done.results.main_metric] >= least, done.results.rows
    again = evaluate(tmp_path / "out", file=file, device="cpu", reporter=Silent(), **columns)
    assert again.metrics == done.results.best.dev
    columns.pop("label", None)
    predictions = predict(tmp_path / "out", file=file, device="cpu", reporter=Silent(), **columns)
    assert len(predictions) == again.examples
    json.dumps([prediction.value for prediction in predictions])


def test_questions_without_answer_have_their_threshold_from_dev(bert_folder: Path, tmp_path: Path) -> None:
    file = toy_tasks.questions(tmp_path, impossible=True)
    finetune(
        bert_folder,
        task="question_answering",
        train=file,
        dev=toy_tasks.again(file),
        out=tmp_path / "out",
        device="cpu",
        set=THOROUGH,
        reporter=Silent(),
    )
    task = json.loads((tmp_path / "out" / "task.json").read_text(encoding="utf-8"))
    assert task["metric"] == "squad_v2"
    scores = evaluate(tmp_path / "out", file=file, device="cpu", reporter=Silent()).metrics
    assert scores["f1"] == pytest.approx(scores["best_f1"])


def test_entities_are_placed_in_the_text_as_it_was_given(bert_folder: Path, tmp_path: Path) -> None:
    file = toy_tasks.tagged(tmp_path)
    finetune(bert_folder, task="tagging", train=file, out=tmp_path / "out", set=THOROUGH, reporter=Silent())
    text = " 我 爱北京 "
    [prediction] = predict(tmp_path / "out", text, device="cpu", reporter=Silent())
    found = {(one["label"], one["start"], one["end"], one["text"]) for one in prediction.details["entities"]}
    assert found == {("PER", 1, 2, "我"), ("LOC", 4, 6, "北京")}
    assert all(text[one["start"] : one["end"]] == one["text"] for one in prediction.details["entities"])


def test_german_chinese_and_emoji_of_a_newcomer_work_at_the_first_try(bert_folder: Path, tmp_path: Path) -> None:
    rows = [
        (f"{text}{end}", label)
        for text, label in (("Süß! 🐈 我爱北京", "gut"), ("我爱北京 🙂", "gut"), ("他们不是…", "schlecht"))
        for end in ("", "!", "?", " .", ",", ";", " !", "!!", "??", " …", ":", " -")
    ]
    file = tmp_path / "mein e-mails.csv"
    lines = ["satz;urteil", *(f'"{text}";{label}' for text, label in rows)]
    file.write_text("\r\n".join(lines) + "\r\n", encoding="utf-8-sig")
    done = finetune(
        bert_folder,
        task="classification",
        train=file,
        out=tmp_path / "out",
        set=THOROUGH,
        reporter=(heard := Heard()),
    )
    assert done.finished
    assert "'satz' is taken as the text" in heard.text()
    predicted = predict(tmp_path / "out", ["我爱北京 🙂 😡", "他们不是 🙂"], reporter=Silent())
    assert [one.value for one in predicted] == ["gut", "schlecht"]


def test_numbers_of_any_size_are_learnt_and_kept_in_their_own_unit(bert_folder: Path, tmp_path: Path) -> None:
    lines = ["text,price"]
    lines += [f"the {('dog', 'cat')[number % 2]} sat,{(-250_000, 750_000)[number % 2]}" for number in range(32)]
    file = tmp_path / "prices.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = finetune(
        bert_folder,
        task="regression",
        train=file,
        dev=toy_tasks.again(file),
        out=tmp_path / "out",
        device="cpu",
        set=(*THOROUGH, "epochs=20"),
        reporter=Silent(),
    )
    assert done.results is not None
    fitted = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))["fitted"]
    assert {"task.offset", "task.scale"} <= {choice["field"] for choice in fitted}
    assert done.results.task_settings == {"offset": 250_000.0, "scale": 500_000.0, "bounds": None}
    assert done.results.best.dev["mean_absolute_error"] < 50_000
    again = predict(tmp_path / "out", ["the dog sat", "the cat sat"], device="cpu", reporter=Silent())
    assert [one.value for one in again] == pytest.approx([-250_000, 750_000], abs=50_000)
    kept = json.loads((tmp_path / "out" / "task.json").read_text(encoding="utf-8"))
    assert (kept.get("offset", 0.0), kept["scale"]) == (0.0, 1.0)
    assert "| task.scale | 500000.0 |" in (tmp_path / "out" / "results.md").read_text(encoding="utf-8")
    # What was measured is what the folder's model says, with the unit in its last layer.
    said = tmp_path / "said.jsonl"
    measured = evaluate(tmp_path / "out", file=toy_tasks.again(file), out=said, device="cpu", reporter=Silent())
    assert said.read_bytes() == (tmp_path / "out" / "runs" / "seed-0" / "dev_predictions.jsonl").read_bytes()
    assert measured.metrics == done.results.best.dev


def test_the_other_order_doubles_the_pairs(bert_folder: Path, tmp_path: Path) -> None:
    file = toy_tasks.numbers(tmp_path, rows=16)
    dev = toy_tasks.again(file)
    steps, cut = [], []
    for name, both in (("one", "false"), ("both", "true")):
        done = finetune(
            bert_folder, task="regression", train=file, dev=dev, text="a", text2="b", out=tmp_path / name,
            set=("epochs=1", "batch_size=8", "max_length=8", f"double_unordered={both}"), reporter=Silent(),
        )  # fmt: skip
        assert done.results is not None
        steps.append(done.results.rows[0].steps)
        cut.append(done.results.data["train"]["cut"])
    assert steps == [2, 4]
    # A pair that is cut is one example, in whichever order.
    assert cut == [16, 16]


def test_texts_of_two_parts_and_few_examples_are_told_with_the_results(
    tune: Callable[..., FineTuning], tmp_path: Path
) -> None:
    dev = toy_tasks.texts(tmp_path, "dev.csv", rows=6)
    test = tmp_path / "test.csv"
    test.write_text("text,label\nthe tree,feline\nthe cat sat on the mat,feline\n", encoding="utf-8")
    results = tune(dev=dev, test=test, reporter=(heard := Heard())).results
    assert results is not None
    told = (
        ("dev", "all 6 texts also in train; 6 examples, each 17 % of the score"),
        (
            "test",
            "1 of 2 texts also in train; 1 of 2 texts also in dev; 2 examples, each 50 % of the score",
        ),
    )
    assert results.notes == tuple(f"{part}: {text}." for part, text in told)
    assert set(told) <= set(heard.said)
    for page in ("results.md", "README.md"):
        assert f"\n{results.notes[1]}\n" in (tmp_path / "out" / page).read_text(encoding="utf-8")
    assert json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["notes"] == list(results.notes)


def test_examples_that_were_cut_are_told(tune: Callable[..., FineTuning], tmp_path: Path) -> None:
    dev = tmp_path / "dev.csv"
    dev.write_text(f"text,label\nthe cat,feline\nthe dog,canine\n{'the dog ' * 20},canine\n", encoding="utf-8")
    tune(dev=dev, test=toy_tasks.texts(tmp_path, "test.csv", rows=4), reporter=(heard := Heard()))
    assert [text for topic, text in heard.said if topic == "cut"] == ["1 of 3 dev examples truncated to 32 tokens"]
    tune(dev=dev, reporter=(heard := Heard()), set=["max_length=8"], out=tmp_path / "short")
    (told,) = [text for topic, text in heard.said if topic == "cut"]
    assert re.fullmatch(r"\d+ of 48 train, 1 of 3 dev examples truncated to 8 tokens", told)


def test_a_device_and_a_folder_are_tried_before_anything_is_read(
    tune: Callable[..., FineTuning], bert_folder: Path, tmp_path: Path
) -> None:
    missing = tmp_path / "missing.csv"
    with pytest.raises(DeviceError, match="unknown device 'cdua'"):
        finetune(bert_folder, task="regression", train=missing, out=tmp_path / "out", device="cdua")
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(DeviceError, match=r"cannot write .*file/out"):
        tune(train=missing, out=tmp_path / "file" / "out")
    with pytest.raises(DataError, match=r"no such file.*missing\.csv"):
        tune(train=missing, out=tmp_path / "new" / "out")
    assert not (tmp_path / "new").exists()


def test_a_loss_that_is_no_number_stops_before_the_weights(tune: Callable[..., FineTuning]) -> None:
    with pytest.raises(TrainingError, match="learning_rate"):
        tune(set=["learning_rate=1e30", "clip_norm=0"])


def test_another_fine_tuning_in_the_folder_is_refused_with_what_differs(
    tune: Callable[..., FineTuning], tmp_path: Path
) -> None:
    tune()
    with pytest.raises(CheckpointError, match=r"settings.learning_rate was 0.005, now 0.001"):
        tune(set=["learning_rate=1e-3"])
    toy_tasks.texts(tmp_path, rows=20)
    with pytest.raises(CheckpointError, match=r"data.train was '44 examples .*now '15 examples"):
        tune()


def test_a_model_is_not_written_over(tune: Callable[..., FineTuning], bert_folder: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(bert_folder, mine)
    before = (mine / "model.safetensors").read_bytes()
    toy_tasks.texts(tmp_path)
    asked: dict[str, Any] = {"task": "classification", "train": tmp_path / "texts.csv", "reporter": Silent()}
    with pytest.raises(CheckpointError, match="the model to fine-tune"):
        finetune(mine, out=tmp_path / "elsewhere" / ".." / "mine", **asked)
    # A finished pretraining whose checkpoints were removed.
    (mine / "run.json").write_text(json.dumps({"format": 1, "request": {}, "result": {"finished": True}}))
    with pytest.raises(CheckpointError, match="the model to fine-tune"):
        finetune(mine, out=mine, **asked)
    with pytest.raises(CheckpointError, match="holds a pretraining, and a fine-tuning would write its own model"):
        tune(out=mine)
    assert (mine / "model.safetensors").read_bytes() == before
    assert not (mine / "runs").exists()


def test_a_fine_tuned_model_is_not_written_over_by_a_pretraining(
    tune: Callable[..., FineTuning], tmp_path: Path
) -> None:
    tune()
    before = (tmp_path / "out" / "model.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match="holds a fine-tuning, and a pretraining would write its own model"):
        pretrain(tmp_path / "texts.csv", out=tmp_path / "out", steps=1, reporter=Silent())
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == before
    assert tune().finished


def test_files_of_someone_else_are_not_written_over(tune: Callable[..., FineTuning], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"thesis\.txt"):
        tune()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("text,label\n", "no examples|no rows"),
        ("text,label\nthe cat,a\nthe dog,a\nthe tree,a\n", "two or more labels.*only 'a'"),
        ("text,label\nthe cat,\nthe dog,\n", "no label"),
    ],
)
def test_files_that_cannot_teach_are_refused(
    content: str, message: str, tune: Callable[..., FineTuning], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        tune(train=bad)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"task": "clasification"}, "Did you mean 'classification'"),
        ({"task": "sst2x"}, "Did you mean 'sst-2'"),
        ({"set": ["learning_rat=1"]}, "Did you mean 'learning_rate'"),
        ({"set": ["task.metrics=[acuracy]"]}, "Did you mean 'accuracy'"),
        ({"set": ["task.metric=accuracy"]}, "did you mean 'metrics'"),
        ({"set": ["lr=1e-4"]}, "Did you mean 'learning_rate'"),
        ({"read": ["quotin=none"]}, "Did you mean 'quoting'"),
        ({"read": ["quoting=maybe"]}, "quoting"),
        ({"grid": ["learning_rate="]}, "has no value"),
        ({"grid": ["epochs=1,2", "epochs=3"]}, "twice"),
        ({"grid": ["epoch=1,2"]}, "Did you mean 'epochs'"),
        ({"seeds": 0}, "--seeds is 0"),
        ({"system": "macbart"}, "Did you mean 'macbert'"),
        ({"text": "txt"}, "Did you mean 'text'"),
        ({"label": "lable"}, "Did you mean 'label'"),
        ({"train": None}, "no data was given"),
        ({"data": "folder"}, "--data names a benchmark's folder"),
        ({"set": ["max_length=400"]}, "40 positions"),
    ],
)
def test_mistakes_are_answered_before_anything_is_trained(
    asked: dict[str, Any], message: str, tune: Callable[..., FineTuning], tmp_path: Path
) -> None:
    with pytest.raises(MaskwrightError, match=message):
        tune(**asked)
    assert not list(tmp_path.glob("out/runs/**/model"))


def test_a_missing_file_is_answered_with_the_nearest(tune: Callable[..., FineTuning], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Did you mean .*texts\.csv"):
        tune(train=tmp_path / "text.csv")


def test_a_label_of_dev_that_train_lacks_is_named(tune: Callable[..., FineTuning], tmp_path: Path) -> None:
    dev = tmp_path / "dev.csv"
    dev.write_text("text,label\nthe cat,feline\nthe tree,canin\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"dev\.csv, example 3: unknown label 'canin'.*Did you mean 'canine'"):
        tune(dev=dev)


@pytest.mark.parametrize("part", ["dev", "test"])
@pytest.mark.parametrize(
    ("task", "make", "bad", "message"),
    [
        ("regression", toy_tasks.numbers, "a\tb\tscore\nthe cat\tthe dog\t1\n", "all numbers are equal"),
        ("tagging", toy_tasks.tagged, "我\tB-PER\n爱\tX-PER\n\n", "'X-PER' is not a tag"),
        (
            "question-answering",
            toy_tasks.questions,
            '{"data": [{"paragraphs": [{"context": "the cat", "qas": '
            '[{"id": "7", "question": "who", "answers": [], "is_impossible": true}]}]}]}',
            "question 7 has no answer",
        ),
    ],
)
def test_what_could_not_be_measured_is_refused_before_training(
    part: str,
    task: str,
    make: Callable[[Path], Path],
    bad: str,
    message: str,
    bert_folder: Path,
    tmp_path: Path,
) -> None:
    file = make(tmp_path)
    other = tmp_path / f"other{file.suffix}"
    other.write_text(bad, encoding="utf-8")
    columns = {"text": "a", "text2": "b", "label": "score"} if task == "regression" else {}
    given = {"dev": toy_tasks.again(file), part: other}
    with pytest.raises(DataError, match=message):
        finetune(bert_folder, task=task, train=file, out=tmp_path / "out", reporter=Silent(), **given, **columns)
    assert not (tmp_path / "out").exists()


def test_what_does_not_fit_the_model_is_refused_in_use(tune: Callable[..., FineTuning], tmp_path: Path) -> None:
    tune()
    out = tmp_path / "out"
    with pytest.raises(RecipeError, match="fine-tuned for classification"):
        evaluate(out, task="sts-b", data=tmp_path, reporter=Silent())
    with pytest.raises(RecipeError, match="unknown split"):
        evaluate(out, file=tmp_path / "texts.csv", split="devel", reporter=Silent())
    with pytest.raises(DataError, match="a model for classification takes"):
        predict(out, [{"question": "who", "context": "me"}], reporter=Silent())
    with pytest.raises(DataError, match="nothing was given"):
        predict(out, [], reporter=Silent())
    unlabeled = toy_tasks.texts(tmp_path, "unlabeled.csv", labeled=False)
    with pytest.raises(DataError, match="label"):
        evaluate(out, file=unlabeled, reporter=Silent())


def test_the_stride_of_windows_is_fitted_with_the_length_and_that_is_said(bert_folder: Path, tmp_path: Path) -> None:
    class Told(Heard):
        def tabulate(self, topic: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
            self.said += [(topic, " ".join(row)) for row in rows]

    file = toy_tasks.questions(tmp_path)
    dev = toy_tasks.again(file)
    asked: dict[str, Any] = {"task": "question-answering", "train": file, "dev": dev, "device": "cpu"}
    short = ("epochs=1", "batch_size=8", "learning_rate=1e-3")
    finetune(bert_folder, out=tmp_path / "fitted", set=short, reporter=(heard := Told()), **asked)
    # The model has 40 positions, of 384 that were published with windows 128 apart.
    assert load(tmp_path / "fitted").task.doc_stride == 13
    assert "fitted task.doc_stride 128 13 keeps the published ratio to max_length, 128 of 384 tokens" in heard.text()
    finetune(bert_folder, out=tmp_path / "set", set=(*short, "task.doc_stride=7"), reporter=(heard := Told()), **asked)
    assert load(tmp_path / "set").task.doc_stride == 7
    assert "doc_stride" not in heard.text()
    finetune(bert_folder, out=tmp_path / "grid", set=short, grid=["max_length=24,40"], reporter=Silent(), **asked)
    strides = {
        folder.parent.name: json.loads((folder / "model" / "task.json").read_text(encoding="utf-8"))["doc_stride"]
        for folder in (tmp_path / "grid" / "runs").glob("*/seed-0")
    }
    assert strides == {"max_length=24": 8, "max_length=40": 13}
    held = json.loads((tmp_path / "grid" / "run.json").read_text(encoding="utf-8"))["request"]["task"]
    assert {name: task["doc_stride"] for name, task in held.items()} == strides
