"""A run directory's copy at a URL: usable after a kill at any moment, and resumed where the disk is gone."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from toy_runs import CLEAN, TOY, Train, assert_same_files, kill_process, killed_after, train_toy, write_corpus

from maskwright.core.errors import CheckpointError, DeviceError
from maskwright.core.storage.files import read_json
from maskwright.training.pretraining_run import PretrainingRun
from maskwright.training.runs.checkpoint import CheckpointTimer, latest
from maskwright.training.runs.mirror import Mirror
from recording import Recorder

URL = "memory://mirrors/run"


@pytest.fixture
def train(tmp_path: Path) -> Train:
    return partial(train_toy, tmp_path, steps=8, checkpoint_minutes=0.0)


def files_of(folder: Path) -> dict[str, bytes]:
    """The files that a copy has: all but hidden ones, older checkpoints and kept models."""
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    newest = max((name for name in files if name.startswith("checkpoints/")), default="").rpartition("/")[0]
    return {
        name: content
        for name, content in files.items()
        if not name.startswith("kept/") and (not name.startswith("checkpoints/") or name.startswith(newest))
    }


def refuse_uploads(monkeypatch: pytest.MonkeyPatch, refused: Callable[[Path], bool]) -> None:
    """Let uploads of some files fail."""
    put = Mirror._put

    def put_or_fail(self: Mirror, file: Path, target: str) -> None:
        if refused(file.relative_to(self._folder)):
            raise PermissionError("Access Denied")
        put(self, file, target)

    monkeypatch.setattr(Mirror, "_put", put_or_fail)


def copied(store: Any, step: int) -> dict[str, bytes]:
    folder = f"/mirrors/run/step-{step:09d}/"
    return {path.removeprefix(folder): store.cat_file(path) for path in store.find(folder)}


def test_a_run_whose_folder_is_gone_resumes_from_the_mirror(train: Train, tmp_path: Path, store: Any) -> None:
    undisturbed = train("undisturbed", checkpoint_minutes=1.0)
    with killed_after(5):  # before it is uploaded
        train("run", mirror=URL, keep=4)
    shutil.rmtree(tmp_path / "run")
    recorder = Recorder()
    resumed = train("run", mirror=URL, keep=4, reporter=recorder)
    assert recorder.on("resuming", "from step 4,")
    assert recorder.on("mirror", "downloaded")
    assert_same_files(undisturbed, resumed, "config.json", "recipe.json")
    names = {path.removeprefix("/mirrors/run/").partition("/")[0] for path in store.find("/mirrors/run")}
    assert names == {"latest.json", "step-000000008", "kept"}
    stored = copied(store, 8)
    assert stored == files_of(tmp_path / "run")
    assert read_json(tmp_path / "run/run.json")["result"]["finished"]
    # A finished run is downloaded too, with its kept models.
    shutil.rmtree(tmp_path / "run")
    assert train("run", mirror=URL, keep=4).finished
    assert files_of(tmp_path / "run") == stored
    assert len(list((tmp_path / "run/kept").iterdir())) == 4


def test_a_kill_after_any_uploaded_file_leaves_a_run_that_resumes_to_the_same_bytes(
    train: Train, tmp_path: Path, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = train("undisturbed", steps=3, checkpoint_minutes=1.0)
    put, copies = Mirror._put, []

    def put_and_copy(self: Mirror, file: Path, target: str) -> None:
        put(self, file, target)
        copies.append((target.removeprefix("/mirrors/run/"), dict(store.store)))

    monkeypatch.setattr(Mirror, "_put", put_and_copy)
    train("run", steps=3, mirror=URL)
    monkeypatch.undo()
    # In the first upload, between the first and the second checkpoint, and at the end, where a copy is changed.
    moments = {
        "step-000000001/checkpoints/step-000000001/optimizer.safetensors",
        "step-000000001/model.safetensors",
        "step-000000001/run.json",
        "step-000000002/checkpoints/step-000000002/state.json",
        "step-000000002/run.json",
        "step-000000003/metrics.jsonl",
        "step-000000003/run.json",
    }
    chosen = [(name, files) for name, files in copies if name in moments]
    assert {name for name, _ in chosen} == moments
    for _, files in chosen:
        shutil.rmtree(tmp_path / "run")
        store.store.clear()
        store.store.update(files)
        assert_same_files(undisturbed, train("run", steps=3, mirror=URL, checkpoint_minutes=1.0))


def test_a_process_that_is_cut_off_does_not_write_over_another(train: Train, store: Any) -> None:
    recorder, put = Recorder(), store.pipe_file

    def other_run(*_: Any) -> None:
        put("/mirrors/run/latest.json", b"of another process")

    with patch.object(CheckpointTimer, "is_due", side_effect=lambda _: other_run() or True), pytest.raises(DeviceError):
        train("run", mirror=URL, reporter=recorder)
    assert recorder.on("warning", "another process has written to memory://mirrors/run")
    assert store.cat_file("/mirrors/run/latest.json") == b"of another process"


def test_damaged_checkpoints_do_not_replace_those_of_the_copy(train: Train, tmp_path: Path, store: Any) -> None:
    train("run", mirror=URL)
    stored = copied(store, 8)
    for file in (tmp_path / "run/checkpoints").rglob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    train("run", mirror=URL)
    assert copied(store, 8) == stored


def test_a_failed_upload_is_a_warning_and_an_error_only_at_the_end(train, store, monkeypatch):
    failing, recorder = ["checkpoints/step-000000003/state.json"], Recorder()

    def fails_once(file: Path) -> bool:
        return file.as_posix() in failing and bool(failing.pop())

    refuse_uploads(monkeypatch, fails_once)
    run = train(mirror=URL, reporter=recorder)
    (line,) = recorder.on("warning", "the upload to the mirror failed")
    assert f"cannot access {URL}: PermissionError: Access Denied; the next checkpoint tries again" in line
    store.store.clear()
    failing.append("report.html")
    (run.folder / "report.html").write_text("new")
    with pytest.raises(DeviceError, match="Access Denied"):
        train(mirror=URL)
    assert train(mirror=URL).finished
    assert latest(run.folder / "checkpoints")[0] is not None
    assert copied(store, 8)["report.html"] == b"new"


def test_a_failed_last_upload_is_an_error_with_a_hint(train, tmp_path, store, monkeypatch):
    with monkeypatch.context() as patch:
        refuse_uploads(patch, lambda file: file.name == "run.json" and "result" in read_json(tmp_path / "run" / file))
        with pytest.raises(DeviceError, match="The same command copies the rest") as raised:
            train(mirror=URL)
    assert "the upload to the mirror failed: cannot access memory://mirrors/run" in str(raised.value)
    run = train(mirror=URL)
    assert "problem" not in read_json(run.folder / "run.json")
    assert copied(store, 8)["run.json"] == (run.folder / "run.json").read_bytes()


def test_another_run_other_files_and_a_later_run_are_refused(train: Train, tmp_path: Path, store: Any) -> None:
    store.pipe("/mirrors/run/notes.txt", b"mine")
    with pytest.raises(
        CheckpointError, match=r"memory://mirrors/run is not empty and holds no run \(found notes.txt\)"
    ):
        train(mirror=URL)
    assert not (tmp_path / "run").exists()
    store.store.clear()
    train(mirror=URL, steps=3)
    with pytest.raises(CheckpointError, match=r"mirrors/run holds another run: seed was 0, now 1.* another --mirror"):
        train("other", mirror=URL, steps=3, seed=1)
    assert not (tmp_path / "other").exists()
    with killed_after(1):
        train("behind", steps=3)
    with pytest.raises(CheckpointError, match=r"is ahead of .*behind \(step-000000003, here .*1\)"):
        train("behind", mirror=URL, steps=3)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(CheckpointError, match="full exists and holds no run"):
        train("full", mirror=URL, steps=3)
    (tmp_path / "empty").mkdir()
    assert train("empty", mirror=URL, steps=3).finished


def test_an_extension_that_is_killed_before_an_upload_is_repeated(train, store, monkeypatch):
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    phases = 'training.phases=[{"share": 1.0, "max_length": 16}]'
    stable = (*TOY[:-1], "training.schedule=warmup_stable_decay", "training.decay_share=0.5", phases)
    extended = partial(train, "run", mirror=URL, set=stable)
    extended(steps=8)
    with monkeypatch.context() as context:
        context.setattr(PretrainingRun, "run", die)
        with pytest.raises(KeyboardInterrupt):
            extended(steps=16)
    done = extended(steps=16)
    assert done.steps == 16
    # The stable checkpoint stays the same, so it lies beside the copies.
    stable_copy = {
        path.removeprefix("/mirrors/run/"): store.cat_file(path) for path in store.find("/mirrors/run/stable")
    }
    assert copied(store, 16) | stable_copy == files_of(done.folder)


def test_a_run_resumes_from_the_mirror_without_the_model_it_began_with(train, tmp_path, store):
    model = train("model", steps=1)
    continued = partial(train, "run", mirror=URL, recipe=None, set=(), init=model.folder)
    with killed_after(3):
        continued()
    shutil.rmtree(tmp_path / "run")
    shutil.rmtree(model.folder)
    assert continued().finished


@pytest.mark.slow  # It starts a process.
def test_a_killed_process_whose_disk_is_gone_resumes_from_a_folder(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"recipe": "bert/tiny", "steps": 60, "set": (*TOY, "training.batch_sequences=24")}
    corpus, out, mirror = write_corpus(tmp_path / "corpus.txt"), tmp_path / "killed", tmp_path / "mirror"
    paths = {"corpus": str(corpus), "out": str(out), "mirror": mirror.as_uri()}
    options: dict[str, Any] = {"clean": CLEAN, "workers": 1, "checkpoint_minutes": 0.0}
    kill_process(
        lambda: max(mirror.glob("step-*"), default=mirror).name >= "step-000000010", **paths, **options, **settings
    )
    shutil.rmtree(out)
    train = partial(train_toy, tmp_path, **settings)
    recorder = Recorder()
    resumed = train("killed", mirror=mirror.as_uri(), reporter=recorder)
    assert recorder.on("resuming", "from step ")
    assert_same_files(train("undisturbed"), resumed)
    assert files_of(mirror / "step-000000060") == files_of(out)
    with pytest.raises(CheckpointError, match="contain each other"):
        train("killed", mirror=(out / "copy").as_uri())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow  # It starts a server.
def test_a_run_resumes_from_s3(train: Train, tmp_path: Path, s3: Any) -> None:
    undisturbed = train("undisturbed")
    with pytest.raises(DeviceError, match=r"cannot access s3://runs/base: .*bucket"):
        train("run", mirror="s3://runs/base")
    s3.mkdir("runs")
    with killed_after(5):
        train("run", mirror="s3://runs/base")
    shutil.rmtree(tmp_path / "run")
    resumed = train("run", mirror="s3://runs/base")
    assert_same_files(undisturbed, resumed)
    shutil.rmtree(tmp_path / "run")
    assert train("run", mirror="s3://runs/base").finished
    steps = {path.name for path in (tmp_path / "run/checkpoints").iterdir()}
    assert steps == {"step-000000008"}
