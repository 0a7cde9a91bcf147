"""Fine-tuning from files to a measured model: it learns, resumes bit for bit, adds seeds, refuses what does not fit."""

import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_tasks

from maskwright.core.errors import CheckpointError, DataError, MaskwrightError, RecipeError, TrainingError
from maskwright.evaluation import finetuning, loop, seed_run
from maskwright.evaluation.evaluating import evaluate
from maskwright.evaluation.fine_tuned import load
from maskwright.evaluation.finetuning import FineTuning, finetune
from maskwright.evaluation.predicting import predict
from maskwright.evaluation.seed_run import read_result
from maskwright.training.device import Machine
from maskwright.training.reporting import Silent

QUICK = ("learning_rate=5e-3", "batch_size=8", "epochs=2", "max_length=32")
# The tiny models' weights are large: dropout is all that they would see in a few steps.
NO_DROPOUT = ("hidden_dropout=0", "attention_dropout=0", "head_dropout=0")
THOROUGH = ("learning_rate=5e-3", "batch_size=8", "epochs=8", "max_length=40", *NO_DROPOUT)


class Heard(Silent):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def say(self, topic: str, text: str) -> None:
        self.said.append((topic, text))

    def text(self) -> str:
        return "\n".join(f"{topic} {text}" for topic, text in self.said)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the second in which a machine's speed is measured."""
    machine = Machine(torch.device("cpu"), "a machine", 1, "default", 1e9, None)
    monkeypatch.setattr(finetuning, "prepare_machine", lambda *_: machine)


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
    again = evaluate(out, file=dev, device="cpu", reporter=Silent())
    assert again.metrics == results.best.dev
    assert (again.examples, again.skipped) == (24, 0)
    predicted = predict(out, ["the cat sat on the mat", "the dog sat on the mat"], device="cpu", reporter=Silent())
    assert [one.value for one in predicted] == ["feline", "canine"]


def test_a_killed_run_goes_on_bit_for_bit(
    tune: Callable[..., FineTuning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("peace", "killed"):
        (tmp_path / folder).mkdir()
    tune(out=tmp_path / "peace" / "out", seeds=2, checkpoint_minutes=0)

    class Killed(BaseException):
        pass

    whole = loop._take_step
    for moment in (3, 7):
        left = [moment]

        def step(*given: Any, left: list[int] = left) -> tuple[float, float]:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return whole(*given)

        monkeypatch.setattr(loop, "_take_step", step)
        with pytest.raises(Killed):
            tune(out=tmp_path / "killed" / "out", seeds=2, checkpoint_minutes=0)
    monkeypatch.setattr(loop, "_take_step", whole)
    heard = Heard()
    tune(out=tmp_path / "killed" / "out", seeds=2, checkpoint_minutes=0, reporter=heard)
    assert "goes on after step" in heard.text()
    peace, killed = ((tmp_path / name / "out") for name in ("peace", "killed"))
    files = {str(file.relative_to(peace)) for file in peace.rglob("*") if file.is_file()}
    assert files == {str(file.relative_to(killed)) for file in killed.rglob("*") if file.is_file()}
    # run.json of the whole tells times and the command.
    differing = [name for name in sorted(files) if (peace / name).read_bytes() != (killed / name).read_bytes()]
    assert differing in ([], ["run.json"])


def test_a_stop_saves_and_the_same_call_goes_on(
    tune: Callable[..., FineTuning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = loop._take_step

    def step(*given: Any) -> tuple[float, float]:
        os.kill(os.getpid(), signal.SIGINT)
        return whole(*given)

    monkeypatch.setattr(loop, "_take_step", step)
    stopped = tune()
    assert (stopped.finished, stopped.stopped_by, stopped.results) == (False, "SIGINT", None)
    assert list((tmp_path / "out" / "runs" / "seed-0" / "checkpoints").glob("step-*1"))
    monkeypatch.setattr(loop, "_take_step", whole)
    assert tune().finished


def test_finished_seeds_are_not_repeated_and_more_can_be_added(
    tune: Callable[..., FineTuning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tune(seeds=1).results
    heard = Heard()
    both = tune(seeds=2, reporter=heard).results
    assert "seed 0 is trained already" in heard.text()
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


def test_the_grid_is_chosen_on_dev_with_the_first_seed(tune: Callable[..., FineTuning], tmp_path: Path) -> None:
    file = toy_tasks.texts(tmp_path)
    results = tune(dev=file, grid=["learning_rate=1e-9,5e-3"], set=["epochs=4", *NO_DROPOUT], seeds=2).results
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


def test_without_dev_a_share_of_train_is_held_out_and_said(tune: Callable[..., FineTuning]) -> None:
    heard = Heard()
    results = tune(reporter=heard).results
    assert results is not None
    assert (results.data["train"]["examples"], results.data["dev"]["examples"]) == (43, 5)
    assert "5 of the 48 training examples are held out" in heard.text()
    assert any("held out" in note for note in results.notes)


def test_an_unlabelled_test_file_gives_predictions_and_no_score(
    tune: Callable[..., FineTuning], tmp_path: Path
) -> None:
    test = toy_tasks.texts(tmp_path, "test.csv", rows=4, labelled=False)
    results = tune(test=test).results
    assert results is not None
    assert results.spread("test") == {}
    assert any("no labels" in note for note in results.notes)
    lines = (tmp_path / "out/runs/seed-0/test_predictions.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4


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
    results = tune(set=["epochs=12", "patience=2"]).results
    assert results is not None
    steps, best = results.rows[0].steps, results.rows[0].best_epoch
    assert steps == (best + 2) * 6 < 12 * 6


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
        dev=file,
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
        dev=file,
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
    finetune(bert_folder, task="tagging", train=file, dev=file, out=tmp_path / "out", set=THOROUGH, reporter=Silent())
    text = " 我 爱北京 "
    [prediction] = predict(tmp_path / "out", text, device="cpu", reporter=Silent())
    found = {(one["label"], one["start"], one["end"], one["text"]) for one in prediction.details["entities"]}
    assert found == {("PER", 1, 2, "我"), ("LOC", 4, 6, "北京")}
    assert all(text[one["start"] : one["end"]] == one["text"] for one in prediction.details["entities"])


def test_german_chinese_and_emoji_of_a_newcomer_work_at_the_first_try(bert_folder: Path, tmp_path: Path) -> None:
    rows = [
        ("Die Katze schläft 🐈, süß!", "gut"),
        ("我爱北京 🙂", "gut"),
        ("Schrecklich… 😡", "schlecht"),
        ("他们不是", "schlecht"),
    ]
    file = tmp_path / "mein e-mails.csv"
    lines = ["satz;urteil", *(f'"{text}";{label}' for text, label in rows * 5)]
    file.write_text("\r\n".join(lines) + "\r\n", encoding="utf-8-sig")
    done = finetune(
        bert_folder, task="classification", train=file, out=tmp_path / "out", set=QUICK, reporter=(heard := Heard())
    )
    assert done.finished
    assert "'satz' is taken as the text" in heard.text()
    assert predict(tmp_path / "out", "我爱北京 🙂", reporter=Silent())[0].value in ("gut", "schlecht")


def test_both_orders_doubles_the_pairs(bert_folder: Path, tmp_path: Path) -> None:
    file = toy_tasks.numbers(tmp_path, rows=16)
    steps = []
    for name, both in (("one", "false"), ("both", "true")):
        done = finetune(
            bert_folder, task="regression", train=file, dev=file, text="a", text2="b", out=tmp_path / name,
            set=("epochs=1", "batch_size=8", f"both_orders={both}"), reporter=Silent(),
        )  # fmt: skip
        assert done.results is not None
        steps.append(done.results.rows[0].steps)
    assert steps == [2, 4]


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
    with pytest.raises(CheckpointError, match=r"data.train was '43 examples .*now '18 examples"):
        tune()


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
        ({"set": ["task.metric=accuracy"]}, "Did you mean 'metrics'"),
        ({"read": ["quotin=none"]}, "Did you mean 'quoting'"),
        ({"read": ["quoting=maybe"]}, "quoting"),
        ({"grid": ["learning_rate="]}, "names no value"),
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
    unlabelled = toy_tasks.texts(tmp_path, "unlabelled.csv", labelled=False)
    with pytest.raises(DataError, match="label"):
        evaluate(out, file=unlabelled, reporter=Silent())
