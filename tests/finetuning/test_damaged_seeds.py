"""Damaged and missing files of a fine-tuning: the same command trains that seed again, and publishes the same model."""

import itertools
import shutil

import pytest
import toy_tasks
from toy_tasks import QUICK

import damage
from damage import HARMS, flip_bit, without_times
from maskwright.core.errors import CheckpointError, DeviceError
from maskwright.finetuning import seed_run
from maskwright.finetuning.finetune import finetune
from maskwright.reporting.reporter import Reporter
from maskwright.training.steps.optimizer import Optimizer
from recording import Recorder

SEED = "runs/seed-1"
RECORDS = ("run.json", "runs/seed-0/copies", "runs/seed-1/copies")
"""They hold the time-dependent environment."""


def contents(folder, *without):
    """Return the files of a folder by name, without times."""
    return {name: without_times(folder / name) for name in damage.contents(folder, *without)}


class Killed(BaseException):
    """As SIGKILL."""


@pytest.fixture(scope="module")
def finished(bert_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    toy_tasks.texts(folder, rows=24)
    toy_tasks.texts(folder, "test.csv", offset=24, rows=8)
    run(bert_folder, folder, folder / "out")
    return folder


def run(model, folder, out, **options):
    options = {"seeds": 2, "test": folder / "test.csv", "reporter": Reporter(), **options}
    files = {"train": folder / "texts.csv", "dev": folder / "texts.csv"}
    return finetune(model, task="classification", device="cpu", set=QUICK, out=out, **files, **options)


@pytest.fixture
def again(bert_folder, finished, tmp_path):
    """The same command in a copy of the folder; returns what it reports."""
    shutil.copytree(finished / "out", tmp_path / "out")

    def repeat(**options):
        recorder = Recorder()
        assert run(bert_folder, finished, tmp_path / "out", reporter=recorder, **options).finished
        return recorder.text()

    return repeat


@pytest.fixture
def trained(monkeypatch):
    """The seeds that are trained from now on."""
    seeds, real = [], seed_run.SeedRun.run

    def noted(self, *rest):
        seeds.append(self.seed)
        return real(self, *rest)

    monkeypatch.setattr(seed_run.SeedRun, "run", noted)
    return seeds


def test_a_seed_with_a_damaged_model_is_trained_again_and_published(again, trained, tmp_path):
    before = contents(out := tmp_path / "out", *RECORDS)
    flip_bit(out / SEED / "model" / "model.safetensors")
    (out / SEED / "model" / "task.json").unlink()
    assert "model/model.safetensors " in again()
    assert trained == [1]
    assert contents(out, *RECORDS) == before


@pytest.mark.slow
def test_each_damaged_file_of_a_seed_has_that_seed_trained_again(again, trained, tmp_path):
    before = contents(out := tmp_path / "out", *RECORDS)
    names = [name.removeprefix(f"{SEED}/") for name in before if name.startswith(f"{SEED}/") and "/test" not in name]
    assert {"model/model.safetensors", "model/task.json", "model/vocab.txt", "run.json"} < {*names}
    for name, harm in zip(names, itertools.cycle(HARMS), strict=False):
        HARMS[harm](out / SEED / name)
        messages = again()
        assert trained == [1]
        assert f"{name.rpartition('/')[2]} " in messages or (name, harm) == ("run.json", "delete")
        assert contents(out, *RECORDS) == before
        trained.clear()


@pytest.mark.parametrize("name", ["test.json", "test_predictions.jsonl"])
def test_damaged_test_predictions_are_made_again(name, again, trained, tmp_path):
    before = contents(out := tmp_path / "out", *RECORDS)
    flip_bit(out / SEED / name)
    assert f"{name} " in again()
    assert not trained
    assert contents(out, *RECORDS) == before


def test_a_damaged_seed_of_an_earlier_call_is_trained_again(again, trained, tmp_path):
    before = contents(out := tmp_path / "out", *RECORDS)
    flip_bit(out / SEED / "model" / "model.safetensors")
    again(seeds=1)
    assert trained == [1]
    assert contents(out, *RECORDS) == before


def test_damaged_published_files_are_written_again(again, trained, tmp_path):
    before = contents(out := tmp_path / "out", *RECORDS)
    for name in ("model.safetensors", "task.json", "vocab.txt", "README.md", "results.json"):
        flip_bit(out / name)
    recorder = again()
    assert all(f"{name} is damaged" in recorder for name in ("model.safetensors", "task.json", "vocab.txt"))
    assert not trained
    assert contents(out, *RECORDS) == before


@pytest.mark.parametrize("harm", HARMS)
def test_the_record_is_restored_from_a_seed(harm, again, trained, tmp_path):
    before = contents(out := tmp_path / "out", *RECORDS)
    HARMS[harm](out / "run.json")
    flip_bit(out / SEED / "copies" / "run.json")
    assert "run.json" in again()
    assert not trained
    assert contents(out, *RECORDS) == before


def test_a_record_without_a_copy_is_one_error_with_a_remedy(again, tmp_path):
    for path in (tmp_path / "out").rglob("run.json"):
        flip_bit(path)
    with pytest.raises(CheckpointError, match=r"run\.json .* or remove .*out to start again"):
        again()


@pytest.mark.parametrize("damaged", ["best", "checkpoints"])
def test_a_seed_whose_best_epoch_or_checkpoints_are_damaged_starts_again(
    damaged, bert_folder, finished, trained, tmp_path, monkeypatch
):
    out, step, left = tmp_path / "out", Optimizer.step, itertools.count(5, -1)

    def kill(*args, **kwargs):
        if not next(left):
            raise Killed
        return step(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Optimizer, "step", kill)
        with pytest.raises(Killed):
            run(bert_folder, finished, out, checkpoint_minutes=0)
    for path in (out / "runs" / "seed-0" / damaged).rglob("*.safetensors"):
        flip_bit(path)
    recorder = Recorder()
    run(bert_folder, finished, out, reporter=recorder)
    assert "trained again from the start" in recorder.text()
    assert contents(out, *RECORDS) == contents(finished / "out", *RECORDS)


def test_a_folder_removed_while_a_seed_trains_is_not_made_anew(bert_folder, finished, tmp_path, monkeypatch):
    out, step = tmp_path / "out", Optimizer.step

    def remove(*args, **kwargs):
        shutil.rmtree(out, ignore_errors=True)
        return step(*args, **kwargs)

    monkeypatch.setattr(Optimizer, "step", remove)
    with pytest.raises(DeviceError, match="was removed while this process worked in it"):
        run(bert_folder, finished, out)
    assert not out.exists()
