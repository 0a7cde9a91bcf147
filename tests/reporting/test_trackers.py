"""Trackers get every number, resume their run, and never stop a training."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from maskwright.core.errors import MaskwrightError
from maskwright.core.storage.files import mark_in_use, unmark_in_use
from maskwright.reporting import trackers
from maskwright.reporting.trackers import TRACKING, TrackedRun, Trackers, choose_trackers
from recording import Recorder


def track(folder: Path, name: str, steps: range, last_step: int = 0) -> Recorder:
    recorder = Recorder()
    run = TrackedRun(folder=folder, name="mine", settings={"training": {"steps": 4}}, last_step=last_step)
    session = Trackers([name], run, recorder)
    for step in steps:
        session.log({"loss": 1 / step, "dev_ndcg@10": 0.5, "timing/seconds": 0.5 * step}, step)
    session.close("KILLED" if last_step else "FINISHED")
    assert not any(topic == "warning" for topic, _ in recorder.messages), recorder.messages
    return recorder


def track_twice(folder: Path, name: str) -> str:
    """Track two sessions of a run; return its id, which the second has from the first."""
    track(folder, name, range(1, 4))
    first = json.loads((folder / TRACKING).read_text(encoding="utf-8"))[name]
    track(folder, name, range(4, 6), last_step=3)
    assert json.loads((folder / TRACKING).read_text(encoding="utf-8")) == {name: first}
    return str(first)


@pytest.mark.slow  # Its import takes seconds.
@pytest.mark.filterwarnings("ignore")
def test_mlflow_shows_both_sessions_as_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = (tmp_path / "mlruns").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    run = track_twice(tmp_path, "mlflow")
    client = mlflow.MlflowClient(tracking_uri=uri)
    assert [(one.step, one.value) for one in client.get_metric_history(run, "loss")] == [
        (step, pytest.approx(1 / step)) for step in range(1, 6)
    ]
    assert client.get_run(run).data.params == {"training.steps": "4"}
    assert len(client.get_metric_history(run, "dev_ndcg_10")) == 5
    assert client.get_run(run).info.status == "KILLED"


@pytest.mark.slow  # Its import takes seconds.
@pytest.mark.filterwarnings("ignore")
def test_numbers_that_mlflow_refuses_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    session = Trackers(["mlflow"], TrackedRun(folder=tmp_path, name="mine", settings={}), recorder := Recorder())
    session.log({"../loss": 1.0}, 1)
    session.log({"loss": 1.0}, 2)
    session.close()
    assert [topic for topic, _ in recorder.messages] == ["tracking", "warning"]


@pytest.mark.slow  # Its service takes seconds to start.
@pytest.mark.filterwarnings("ignore")
def test_wandb_writes_both_sessions_offline_under_one_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = track_twice(tmp_path, "wandb")
    assert len(list((tmp_path / "wandb").glob(f"offline-run-*/run-{run}.wandb"))) == 2


@pytest.mark.slow  # Its import takes seconds.
@pytest.mark.filterwarnings("ignore")
def test_trackio_shows_both_sessions_as_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # Read when it is imported.
    pytest.importorskip("trackio")
    from trackio.sqlite_storage import SQLiteStorage

    run = track_twice(tmp_path, "trackio")
    assert [row["step"] for row in SQLiteStorage.get_logs("maskwright", run)] == [1, 2, 3, 4, 5]


def test_tensorboard_drops_the_steps_after_a_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    track(tmp_path, "tensorboard", range(1, 5))
    track(tmp_path, "tensorboard", range(3, 6), last_step=2)
    assert not (tmp_path / TRACKING).exists()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3, 4, 5]


def test_a_failing_tracker_is_one_message_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        id, where, calls = "7", "", 0

        def __init__(self, run: TrackedRun) -> None:
            pass

        def log(self, numbers: Any, step: int) -> None:
            Failing.calls += 1
            raise ConnectionError("the service\nis down")

        def close(self, status: trackers.Status) -> None:
            raise AssertionError("it was left out")

    def refusing(run: TrackedRun) -> Any:
        raise RuntimeError

    monkeypatch.setattr(trackers, "_TRACKERS", {"failing": Failing, "refusing": refusing})
    recorder = Recorder()
    session = Trackers(["failing", "refusing"], TrackedRun(folder=tmp_path, name="mine", settings={}), recorder)
    for step in (1, 2):
        session.log({"loss": 1.0}, step)
    session.close()
    assert Failing.calls == 1
    assert [text.partition(";")[0] for _, text in recorder.messages] == [
        "cannot write to refusing (RuntimeError)",
        "cannot write to failing (the service)",
    ]
    assert not any("metrics.jsonl" in text for _, text in recorder.messages)  # Embedding training writes none.


def test_ids_that_cannot_be_read_are_new(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / TRACKING).write_text("[]", encoding="utf-8")
    track(tmp_path, "tensorboard", range(1, 2))


def test_a_removed_run_directory_leaves_no_hook_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(run: TrackedRun) -> Any:
        folder.rmdir()
        raise OSError

    monkeypatch.setattr(trackers, "_TRACKERS", {"tensorboard": failing})
    hook = threading.excepthook
    (folder := tmp_path / "run").mkdir()
    mark_in_use(folder, -1)
    try:
        with pytest.raises(MaskwrightError, match="was removed"):
            Trackers(["tensorboard"], TrackedRun(folder=folder, name="mine", settings={}), Recorder())
    finally:
        unmark_in_use(folder)
    assert threading.excepthook is hook


def test_a_missing_library_is_one_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MaskwrightError, match=r"--report-to wandb needs wandb.*maskwright\[wandb\]"):
        choose_trackers(["wandb"])
    with pytest.raises(MaskwrightError, match=r"unknown tracker 'wandbb'.*Did you mean 'wandb'"):
        choose_trackers(["wandbb"])


def test_none_stands_alone_and_names_may_be_one_string() -> None:
    assert choose_trackers(["none"]) == choose_trackers("none") == ()
    with pytest.raises(MaskwrightError, match="combines none with trackers"):
        choose_trackers("none,tensorboard")
