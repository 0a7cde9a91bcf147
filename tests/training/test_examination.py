"""`maskwright.examine` names what is wrong with a run and what to do."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from maskwright.cli.main import main
from maskwright.core.errors import CheckpointError
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
    save_file({"w": torch.ones(3)}, tmp_path / "model.safetensors")
    return tmp_path


def on(topic: str, folder: Path) -> list[Finding]:
    return [finding for finding in examine(folder) if finding.topic == topic]


def test_an_intact_run_is_described(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [(each.topic, bool(each.hint)) for each in examine(folder)] == [
        ("record", True),
        ("checkpoint", False),
        ("spike", True),
        ("loss", False),
        ("model", False),
    ]
    assert "step 151: gradient norm 99 " in on("spike", folder)[0].text
    with pytest.raises(SystemExit) as exit:
        main(["doctor", str(folder)])
    assert exit.value.code == 0
    assert "step-000000002 is the newest that is intact" in " ".join(capsys.readouterr().out.split())


def test_damage_is_named(folder: Path) -> None:
    weights = folder / "checkpoints" / "step-000000002" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"1")
    save_file({"w": torch.tensor([1.0, float("nan")])}, folder / "model.safetensors")
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


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no run"):
        examine(tmp_path)
