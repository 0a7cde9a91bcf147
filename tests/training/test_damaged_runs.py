"""Damaged, missing and removed files of a run: the same command restores them, or one error names the file."""

import itertools
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from toy_runs import TOY, RunResult, killed_after, train_toy

from damage import HARMS, contents, flip_bit
from maskwright.core.errors import CheckpointError, DeviceError
from maskwright.core.storage.checksums import read_record
from maskwright.training.runs import checkpoint
from maskwright.training.runs.examination import examine
from maskwright.training.steps.optimizer import Optimizer
from recording import Recorder

NOT_USED_AGAIN = ("checkpoints", "tensorboard", "timing.jsonl", "data_card.md", "run.json")
MADE_AGAIN = ("config.json", "model.safetensors", "generator/config.json", "generator/model.safetensors")
Again = Callable[..., RunResult]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with a generator and two checkpoints."""
    folder = tmp_path_factory.mktemp("damage")
    train_toy(folder, recipe="electra/tiny", set=TOY, steps=4, checkpoint_minutes=0.0)
    return folder / "run"


@pytest.fixture
def again(finished: Path, tmp_path: Path) -> Again:
    """The same command, in a copy of the folder of the run."""
    shutil.copytree(finished, tmp_path / "run")
    return partial(
        train_toy, finished.parent, tmp_path / "run", recipe="electra/tiny", set=TOY, steps=4, checkpoint_minutes=0.0
    )


@pytest.mark.parametrize("every_harm", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_file_that_is_used_again_is_restored_from_a_checkpoint(every_harm, again, tmp_path, monkeypatch):
    before = contents(run := tmp_path / "run", *NOT_USED_AGAIN)
    assert {"recipe.json", "tokenizer.json", "generator/vocab.txt", "metrics.jsonl", "data_card.json"} < before.keys()
    monkeypatch.setattr(Optimizer, "step", None)  # Nothing is trained.
    names, harms = sorted(before.keys() - {*MADE_AGAIN}), HARMS.values()
    for name, harm in itertools.product(names, harms) if every_harm else zip(names, itertools.cycle(harms)):
        harm(run / name)
        assert again(reporter=(recorder := Recorder())).finished
        assert contents(run, *NOT_USED_AGAIN) == before
        assert recorder.on("restored", name.rpartition("/")[2])


def test_speeds_and_pages_of_a_finished_run_are_restored(again, tmp_path, monkeypatch):
    def write_page(folder: Path, _: Any) -> None:
        (folder / "report.html").write_text("<p>Curves.</p>")

    monkeypatch.setattr("maskwright.training.pretrain.write_page", write_page)
    monkeypatch.setattr(Optimizer, "step", None)  # Nothing is trained.
    again()
    before = contents(run := tmp_path / "run", "run.json")
    for name, harm in zip(("timing.jsonl", "data_card.md", "report.html", "timing.jsonl"), HARMS.values(), strict=True):
        harm(run / name)
        assert again(reporter=(recorder := Recorder())).finished
        assert contents(run, "run.json") == before
        assert recorder.on("restored", name)


@pytest.mark.parametrize(("name", "harm"), [*zip(MADE_AGAIN, HARMS, strict=True)])
def test_a_damaged_model_is_made_again_from_the_last_checkpoint(name, harm, again, tmp_path, monkeypatch):
    before, result = contents(run := tmp_path / "run", *NOT_USED_AGAIN), read_record(tmp_path / "run" / "run.json")
    monkeypatch.setattr(Optimizer, "step", None)
    HARMS[harm](run / name)
    assert again(reporter=(recorder := Recorder())).finished
    assert contents(run, *NOT_USED_AGAIN) == before
    assert recorder.on("restored", name.rpartition("/")[2])
    restored = read_record(run / "run.json")
    assert {**restored, "result": None} == {**result, "result": None}
    assert restored["result"]["held_out"] == result["result"]["held_out"]
    assert again(reporter=(recorder := Recorder())).finished
    assert not recorder.on("restored")


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_record_is_restored_and_the_run_finished_again(harm: str, again: Again, tmp_path: Path) -> None:
    before, result = contents(run := tmp_path / "run", *NOT_USED_AGAIN), read_record(tmp_path / "run" / "run.json")
    HARMS[harm](run / "run.json")
    assert again(reporter=(recorder := Recorder())).finished
    assert recorder.on("restored", "run.json")
    assert contents(run, *NOT_USED_AGAIN) == before
    assert read_record(run / "run.json")["outputs"] == result["outputs"]


def test_a_model_and_the_last_checkpoint_damaged_are_trained_again_from_the_one_before(again, tmp_path):
    before = contents(run := tmp_path / "run", *NOT_USED_AGAIN)
    last = max((run / "checkpoints").glob("step-*"))
    for path in (run / "model.safetensors", run / "metrics.jsonl", run / "tokenizer.json", last / "state.json"):
        flip_bit(path)
    for path in (last / "weights.safetensors", *(last / "copies").glob("*.json*")):
        path.unlink()
    assert again(reporter=(recorder := Recorder())).steps == 4
    assert recorder.on("resuming", "step 3")
    assert contents(run, *NOT_USED_AGAIN) == before


@pytest.mark.parametrize("name", ["model.safetensors", "recipe.json", "run.json"])
def test_without_a_checkpoint_one_error_names_file_and_remedy(name: str, again: Again, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.rmtree(run / "checkpoints")
    assert again().finished
    flip_bit(run / name)
    damaged = contents(run)
    with pytest.raises(CheckpointError, match=rf"{name} .*no checkpoint there has a copy.* remove .*run to start"):
        again()
    assert contents(run) == damaged


def test_files_damaged_during_training_are_not_copied_into_checkpoints(tmp_path, monkeypatch):
    whole = train_toy(tmp_path, "whole", steps=6, checkpoint_minutes=0.0)
    save = checkpoint.save

    def damaging(folder: Path, step: int, *rest: Any) -> Path:
        for name in ("recipe.json", "tokenizer.json", "run.json"):
            (tmp_path / "run" / name).write_bytes(b"\0" * 9)
        return save(folder, step, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", damaging)
        with killed_after(5):
            train_toy(tmp_path, steps=6, checkpoint_minutes=0.0)
    metrics = tmp_path / "run" / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"loss": ', '"loss": 1'))
    resumed = train_toy(tmp_path, steps=6, reporter=(recorder := Recorder()))
    assert resumed.finished
    assert len(recorder.on("restored")) == 3
    assert contents(resumed.folder, *NOT_USED_AGAIN) == contents(whole.folder, *NOT_USED_AGAIN)


@pytest.mark.parametrize("moment", [1, 3])
def test_a_run_removed_while_it_trains_ends_in_one_error_and_is_not_made_anew(moment, tmp_path, monkeypatch):
    step, calls = Optimizer.step, iter(range(1, 9))

    def removing(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == moment:
            shutil.rmtree(tmp_path / "run")
        return step(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Optimizer, "step", removing)
        with pytest.raises(DeviceError, match="run was removed while this process worked in it") as caught:
            train_toy(tmp_path, steps=6, checkpoint_minutes=0.0)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
    assert train_toy(tmp_path, steps=6).finished


def test_remains_of_kills_are_removed_at_any_depth(again: Again, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "kept").mkdir()
    left = [
        run / "kept" / ".step-000000003.0a1b2c3d.tmp",
        run / "generator" / ".config.json.0a1b2c3d.tmp",
        run / "checkpoints" / "step-000000004" / ".state.json.0a1b2c3d.tmp",
    ]
    for path in left[1:]:
        path.write_text("{")
    (left[0] / "generator").mkdir(parents=True)
    assert again().finished
    assert not any(path.exists() for path in left)


def test_doctor_names_a_damaged_model(again: Again, tmp_path: Path) -> None:
    flip_bit(tmp_path / "run" / "model.safetensors")
    assert any(each.topic == "record" and "model.safetensors" in each.text for each in examine(tmp_path / "run"))
