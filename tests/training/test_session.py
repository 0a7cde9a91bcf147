"""A session locks a directory, records an error of its block, and says whether the same command resumes."""

from pathlib import Path

import pytest

from maskwright.core.errors import CheckpointError, DataError
from maskwright.core.storage.checksums import read_record
from maskwright.reporting.reporter import Reporter
from maskwright.training.runs.run_directory import RunDirectory
from maskwright.training.runs.session import open_session
from recording import Recorder

REQUEST = {"seed": 0}


def fine_tuning(path: Path) -> RunDirectory:
    return RunDirectory(path, work="fine-tuning", resumable="runs/seed-*")


def work(path: Path, error: BaseException, folder: str = "", reporter: Reporter | None = None) -> None:
    """Write the record in a session, and perhaps a folder, and raise an error."""
    directory = fine_tuning(path)
    with open_session(directory, REQUEST, reporter or Reporter()) as (record, _):
        directory.write_record(record)
        (path / folder).mkdir(parents=True, exist_ok=True)
        raise error


def test_an_error_is_recorded_and_the_directory_unlocked(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        work(tmp_path, DataError("a file is damaged"), "runs/seed-0")
    assert "a file is damaged" in read_record(tmp_path / "run.json")["problem"]
    with open_session(fine_tuning(tmp_path), REQUEST, Reporter()) as (record, _):
        assert record["request"] == REQUEST
        with pytest.raises(CheckpointError, match="another process is training"):
            fine_tuning(tmp_path).open(REQUEST)


def test_the_request_of_another_run_is_no_problem_of_this_one(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        work(tmp_path, DataError("a file is damaged"), "runs/seed-0")
    other = open_session(fine_tuning(tmp_path), {"seed": 1}, Reporter())
    with pytest.raises(CheckpointError, match="seed was 0, now 1"):
        other.__enter__()
    assert "a file is damaged" in read_record(tmp_path / "run.json")["problem"]


@pytest.mark.parametrize(("folder", "moment"), [("", "before the first"), ("runs/seed-0", "after the last")])
def test_an_interrupt_is_reported_with_what_resumes(folder: str, moment: str, tmp_path: Path) -> None:
    recorder = Recorder()
    with pytest.raises(KeyboardInterrupt):
        work(tmp_path, KeyboardInterrupt(), folder, recorder)
    assert recorder.on("stopped", f"{moment} checkpoint")
