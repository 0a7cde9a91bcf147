"""`maskwright finetune`, `evaluate`, `predict`: tables, JSON and files; errors in one line; interruptions with 130."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from maskwright.finetuning import evaluate as evaluate_module
from maskwright.finetuning import finetune as finetune_module
from maskwright.finetuning import predict as predict_module
from maskwright.finetuning.results import Results, SeedRow
from maskwright.training.ranks.device import Machine
from tests.cli.conftest import Run, exit_code

_SETTINGS = (
    "epochs=8",
    "batch_size=4",
    "learning_rate=5e-3",
    "hidden_dropout=0",
    "attention_dropout=0",
    "max_length=20",
)
MACHINE = Machine(torch.device("cpu"), "a machine", 1, "default", None)
THOROUGH = [word for setting in _SETTINGS for word in ("--set", setting)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the second in which a machine's speed is measured, and leave this process's memory as it is."""
    monkeypatch.setattr(evaluate_module, "prepare_machine", lambda *_: MACHINE)
    evaluate_module.machine_to_score.cache_clear()


@pytest.fixture(scope="module")
def tuned(bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts.csv and the model "out" that the command line made of it."""
    folder = tmp_path_factory.mktemp("tuned")
    does = ("sat", "ran", "sat on the mat", "ran to the tree", "ran on", "sat !", "ran !", "sat .", "ran .", "sat ?")
    animals = (("cat", "feline"), ("dog", "canine"))
    rows = [f"the {animal} {what},{label}" for what in does for animal, label in animals]
    (folder / "texts.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune_module, "restore_machine", lambda *_: (MACHINE, ""))
        assert exit_code(
            "finetune", bert_folder, "--task", "classification", "--train", folder / "texts.csv", "--out",
            folder / "out", *THOROUGH, "--device", "cpu",
        ) == 0  # fmt: skip
    return folder


def test_finetune_prints_the_table_and_the_folder_of_the_model(tuned, bert_folder, run, monkeypatch):
    monkeypatch.setattr(finetune_module, "restore_machine", lambda *_: (MACHINE, ""))
    again = (
        "finetune", bert_folder, "--task", "classification", "--train", tuned / "texts.csv", "--out", tuned / "out",
        *THOROUGH,
    )  # fmt: skip
    code, out, err = run(*again)
    assert code == 0
    assert "accuracy (dev)" in out
    assert "baseline: majority class" in out
    assert "seed 0 already trained" in err.replace("\n", " ")
    assert f"maskwright predict {tuned / 'out'}" in err.replace("\n", " ")
    data = json.loads(run(*again, "--json")[1])
    assert data["finished"]
    assert data["results"]["main_metric"] == "accuracy"


def test_evaluate_prints_a_table_or_json_and_writes_predictions(tuned: Path, tmp_path: Path, run: Run) -> None:
    predictions = tmp_path / "predictions.jsonl"
    code, out, _ = run("evaluate", tuned / "out", "--file", tuned / "texts.csv", "--out", predictions)
    assert code == 0
    assert "accuracy" in out
    assert len(predictions.read_text(encoding="utf-8").splitlines()) == 20
    data = json.loads(run("evaluate", tuned / "out", "--file", tuned / "texts.csv", "--json")[1])
    facts = {"model", "task", "file", "examples", "skipped", "truncated", "precision"}
    assert set(data) == facts | {"metrics", "by_class", "confusion"}
    assert (data["precision"], data["examples"]) == ("fp32", 20)


def test_predict_takes_texts_or_a_file(tuned: Path, tmp_path: Path, run: Run) -> None:
    code, out, _ = run("predict", tuned / "out", "the cat sat", "the dog sat")
    assert code == 0
    assert "the cat sat" in out
    assert "%" in out
    [one] = json.loads(run("predict", tuned / "out", "the cat sat", "--json")[1])
    assert one["value"] == "feline"
    assert one["score"] == max(one["details"]["probabilities"].values())
    predictions = tmp_path / "out.jsonl"
    code, out, err = run("predict", tuned / "out", tuned / "texts.csv", "--out", predictions)
    assert (code, out) == (0, "")
    assert "20 predictions in" in err
    assert len(predictions.read_text(encoding="utf-8").splitlines()) == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["finetune", "{model}", "--task", "sst2x", "--train", "x", "--out", "y"], "Did you mean 'sst-2'"),
        (["finetune", "{model}", "--task", "sst-2", "--out", "y"], "no data was given"),
        (["evaluate", "{model}", "--file", "x.csv"], "is a pretrained model, not a fine-tuned one"),
        (["evaluate", "{tuned}/out", "--file", "{tuned}/text.csv"], "Did you mean"),
        (["evaluate", "{tuned}/outt", "--file", "{tuned}/text.csv"], "Did you mean"),
        (["predict", "{tuned}/out"], "nothing was given"),
        (["predict", "{tuned}/out", "a text", "--out", "{tuned}/texts.csv/x.jsonl"], "cannot write"),
        (["evaluate", "{tuned}/out", "--file", "x.csv", "--out", "{tuned}/texts.csv/x.jsonl"], "cannot write"),
        (["predict", "{tuned}/out", "{tuned}/text.csv"], "no such file"),
    ],
)
def test_mistakes_end_with_one_line(arguments, message, tuned, bert_folder, run):
    code, out, err = run(*(word.format(model=bert_folder, tuned=tuned) for word in arguments))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_all_metrics_are_shown_in_tables_of_the_terminal_s_width(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    metrics = {f"metric_number_{number}": number / 10 for number in range(10)}
    rows = tuple(SeedRow(seed=seed, steps=1, best_epoch=1.0, dev=metrics, test=metrics) for seed in (0, 1))
    results = Results(task="squad-2.0", kind="question_answering", model="m", data={}, settings={}, rows=rows)
    done = SimpleNamespace(finished=True, results=results, folder="o")
    monkeypatch.setattr(finetune_module, "finetune", lambda model, **_: done)
    monkeypatch.setenv("COLUMNS", "100")
    _, out, _ = run("finetune", "m", "--task", "squad-2.0", "--data", "d", "--out", "o")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 100
    headings = " ".join(line for line in lines if "metric_" in line)
    assert all(f"{name} ({part})" in headings for name in metrics for part in ("dev", "test"))
    assert sum("standard deviation" in line for line in lines) == sum("metric_" in line for line in lines)
    assert sum("squad-2.0: m" in line for line in lines) == 1


def test_options_arrive_and_an_interruption_ends_with_130(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    received: dict[str, Any] = {}

    def finetune(model: str, **options: Any) -> SimpleNamespace:
        received.update(options, model=model)
        return SimpleNamespace(finished=False, results=None, stopped_by="SIGINT", folder=options["out"])

    monkeypatch.setattr(finetune_module, "finetune", finetune)
    code, _, err = run(
        "finetune", "runs/a", "--task", "squad", "--data", "d", "--out", "o", "--seeds", 3, "--seed", 5,
        "--set", "epochs=1", "--set", "task.doc_stride=32", "--system", "macbert", "--as-published", "--from-scratch",
        "--read", "quoting=none", "--test", "t1", "--test", "t2", "--precision", "bf16",
        "--dimensions", "256,64", "--search", 4,
    )  # fmt: skip
    assert code == 130
    assert "the same command again resumes" in err.replace("\n", " ")
    flags = {"as_published": True, "from_scratch": True}
    lists = {
        "dimensions": ["256", "64"],
        "set": ["epochs=1", "task.doc_stride=32"],
        "read": ["quoting=none"],
        "test": ["t1", "t2"],
    }
    values = {"model": "runs/a", "seeds": 3, "seed": 5, "search": 4, "system": "macbert", "precision": "bf16"}
    assert (values | flags | lists).items() <= received.items()


def test_the_precision_reaches_measuring_and_predicting(monkeypatch: pytest.MonkeyPatch) -> None:
    precisions: list[str] = []

    def evaluate(model: str, **options: Any) -> evaluate_module.Evaluation:
        precisions.append(options["precision"])
        counts = {"examples": 1, "skipped": 0, "truncated": 0}
        scores: dict[str, Any] = {"metrics": {"accuracy": 1.0}, "by_class": {}, "confusion": {}}
        return evaluate_module.Evaluation(model=model, task="t", file="f", precision="bf16", **counts, **scores)

    def predict(model: str, inputs: list[str], **options: Any) -> list[Any]:
        precisions.append(options["precision"])
        return []

    monkeypatch.setattr(evaluate_module, "evaluate", evaluate)
    monkeypatch.setattr(predict_module, "predict", predict)
    assert exit_code("evaluate", "m", "--file", "f.csv", "--precision", "bf16") == 0
    assert exit_code("predict", "m", "a text", "--precision", "bf16", "--json") == 0
    assert exit_code("predict", "m", "a text", "--json") == 0
    assert precisions == ["bf16", "bf16", "auto"]
