"""A run under torchrun that is killed and continues with another number of processes."""

import pytest

from benchmarks.faults import faults
from benchmarks.runner import Settings


@pytest.mark.slow  # torchrun starts three times.
def test_killed_launches_of_other_numbers_of_processes_learn_as_one_process_does(tmp_path, monkeypatch):
    monkeypatch.setenv("MASKWRIGHT_CACHE", "")  # Set again by the suite, and restored.
    ((_, processes, faults_tried, _, samples, lost, repeated, epochs, _, difference),) = [
        row for table in faults(Settings(scratch=tmp_path, cases=("launches",), quick=True)) for row in table.rows
    ]
    assert (processes, faults_tried) == ("2, 1", "1")
    assert (samples, lost, repeated) == ("1200", "0", "0")
    assert int(epochs) >= 2
    assert float(difference) < 1e-5
