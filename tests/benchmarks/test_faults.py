"""Runs under torchrun that are killed, with another number of processes each time."""

from pathlib import Path

import pytest

from benchmarks.faults import faults
from benchmarks.runner import Settings


@pytest.mark.slow  # torchrun starts five times.
def test_killed_launches_of_other_numbers_of_processes_learn_as_one_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASKWRIGHT_CACHE", "")  # Set again by the suite, and restored.
    ((_, processes, faults_tried, _, samples, lost, repeated, epochs, _, difference),) = [
        row for table in faults(Settings(scratch=tmp_path, cases=("launches",))) for row in table.rows
    ]
    assert (processes, faults_tried) == ("4, 2, 3, 2", "3")
    assert (samples, lost, repeated) == ("1200", "0", "0")
    assert int(epochs) >= 2
    assert float(difference) < 1e-5
