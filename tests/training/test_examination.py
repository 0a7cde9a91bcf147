"""`maskwright.examine` names what is wrong with a run or a model and what to do."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from toy_models import LENGTH, save_embedder, save_toy

from maskwright.checkpoints.checkpoint import read_checkpoint
from maskwright.cli.main import main
from maskwright.core.errors import CheckpointError, MaskwrightError
from maskwright.core.storage.checksums import read_record
from maskwright.finetuning.seed_run import DevResult, SeedResult
from maskwright.training.runs import checkpoint, examination
from maskwright.training.runs.examination import Finding, examine
from maskwright.training.runs.run_directory import RunDirectory


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    RunDirectory(tmp_path).write_record({"request": {}})
    for step in (1, 2):
        checkpoint.save(tmp_path / "checkpoints", step, {}, {"w": torch.ones(3)}, {})
    rows = [{"step": step, "loss": 9.0 - 0.01 * step, "gradient_norm": 1 + step % 2} for step in range(1, 201)]
    rows[150]["gradient_norm"] = 99
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return save_toy(tmp_path, "bert/tiny")


def on(topic: str, folder: Path) -> list[Finding]:
    return [finding for finding in examine(folder) if finding.topic == topic]


def test_an_intact_run_is_described(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [(each.topic, bool(each.hint)) for each in examine(folder)] == [
        ("record", True),
        ("checkpoint", False),
        ("spike", True),
        ("loss", False),
        ("model", False),
        ("weights", False),
        ("heads", False),
        ("length", False),
        ("tokenizer", False),
    ]
    assert "step 151: gradient norm 99 " in on("spike", folder)[0].text
    with pytest.raises(SystemExit) as exit:
        main(["doctor", str(folder)])
    assert exit.value.code == 0
    assert "step-000000002 is the newest that is intact" in " ".join(capsys.readouterr().out.split())


def test_damage_is_named(folder: Path) -> None:
    weights = folder / "checkpoints" / "step-000000002" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"1")
    tensors = load_file(folder / "model.safetensors")
    next(iter(tensors.values())).view(-1)[0] = float("nan")
    save_file(tensors, folder / "model.safetensors")
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join([lines[0], "{bad\n", *lines[:0:-1]]))
    (folder / "run.json").write_text("{}")
    (record,) = on("record", folder)
    assert record.text.startswith("damaged: run.json has no checksum")
    damaged, intact = on("checkpoint", folder)
    assert damaged.text.startswith("step-000000002 is damaged: weights.safetensors is damaged")
    assert intact.text == "checkpoints/step-000000001 is the newest that is intact"
    assert "line 2 of" in on("metrics", folder)[0].text
    (model,) = on("model", folder)
    assert "NaN" in model.text
    assert "learning rate" in model.hint


def test_no_checkpoint_is_intact(folder: Path) -> None:
    for step_folder in (folder / "checkpoints").glob("step-*"):
        (step_folder / "state.json").write_text("{}")
    *damaged, last = on("checkpoint", folder)
    assert len(damaged) == 2
    assert last.text == "none is intact"
    assert last.hint


def test_one_lucky_first_batch_does_not_hide_that_the_loss_fell(folder: Path) -> None:
    rows = [{"step": step, "loss": 6.0 if step == 1 else 9.0 - 0.01 * step} for step in range(1, 201)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert not on("loss", folder)[0].hint
    rows = [{"step": step, "loss": 7.0 + 0.01 * step} for step in range(1, 201)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "has not fallen" in on("loss", folder)[0].hint


def test_a_number_that_no_float_can_hold_is_no_loss(folder: Path) -> None:
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": 201, "loss": 10**400}) + "\n")
    assert "up to step 200" in on("loss", folder)[0].text


def test_a_checkpoint_that_the_run_removes_meanwhile_is_not_called_damaged(folder, monkeypatch):
    def remove_then_read(path: Path) -> dict[str, Any]:
        if path.parent.name == "step-000000001":
            shutil.rmtree(path.parent)
        return read_record(path)

    monkeypatch.setattr(examination, "read_record", remove_then_read)
    (intact,) = on("checkpoint", folder)
    assert intact.text == "checkpoints/step-000000002 is the newest that is intact"


def test_the_record_of_one_seed_is_described_and_is_no_pretraining(tmp_path: Path) -> None:
    (tmp_path / "best" / "step-1" / "model").mkdir(parents=True)
    (tmp_path / "best" / "step-1" / "model" / "config.json").write_text("{}")
    history = (DevResult(step=1, epoch=1.0, metrics={"accuracy": 0.5}),)
    SeedResult(seed=3, folder=tmp_path, steps=1, history=history).write()
    assert {path.name for path in tmp_path.iterdir()} == {"model", "run.json"}
    assert on("record", tmp_path)[0].text == "fine-tuning of one seed, finished"
    with pytest.raises(CheckpointError, match="holds a fine-tuning of one seed, and a pretraining would"):
        RunDirectory(tmp_path).open({})


def test_a_folder_without_a_run_or_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds no run .* and no model"):
        examine(tmp_path)
    with pytest.raises(MaskwrightError, match="there is no folder"):
        examine(tmp_path / "other")


def test_a_model_is_described(bert_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = sum(weights.numel() for weights in read_checkpoint(bert_folder).state.values())
    findings = dict(finding[:2] for finding in examine(bert_folder))
    assert findings["model"].startswith("bert, 2 layers of 32, 2 attention heads, feed-forward 64")
    assert findings["weights"] == f"{count:,} parameters, all finite"
    assert findings["heads"] == "mlm, nsp"
    assert findings["length"] == "at most 40 tokens"
    assert findings["tokenizer"].startswith("wordpiece, lowercase, ")
    assert "modules" not in findings
    with pytest.raises(SystemExit) as exit:
        main(["doctor", str(bert_folder), "--json"])
    assert exit.value.code == 0
    assert [each["topic"] for each in json.loads(capsys.readouterr().out)] == list(findings)
    (generator,) = on("generator", save_toy(tmp_path / "electra", "electra/small"))
    assert "layers of" in generator.text


def test_the_modules_of_a_sentence_embedder_are_described(tmp_path: Path) -> None:
    folder = save_embedder(save_toy(tmp_path / "bert", "bert/tiny", "encoder.max_positions=200"), tmp_path / "embedder")
    assert on("modules", folder) == [Finding("modules", "first pooling, normalization")]
    assert on("heads", folder)[0].text == "none"
    assert on("length", folder)[0].text == f"at most {LENGTH} tokens"
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "max"}')
    assert "the pooling max" in on("modules", folder)[0].text


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("model.safetensors", None, "has no weights"),
        ("model.safetensors", 1000, "cannot be read"),
        ("config.json", None, "config.json is missing"),
        ("config.json", 20, "not valid JSON|not JSON"),
    ],
)
def test_a_model_that_cannot_be_read_is_an_error(bert_folder, tmp_path, file, content, problem):
    folder = shutil.copytree(bert_folder, tmp_path / "model")
    whole = (folder / file).read_bytes()
    (folder / file).unlink() if content is None else (folder / file).write_bytes(whole[:content])
    with pytest.raises(MaskwrightError, match=problem):
        examine(folder)


def test_a_missing_tokenizer_is_named(bert_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(bert_folder, tmp_path / "model")
    (folder / "vocab.txt").unlink()
    (tokenizer,) = on("tokenizer", folder)
    assert str(folder) in tokenizer.text
