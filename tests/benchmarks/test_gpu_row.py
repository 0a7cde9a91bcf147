"""The row of the GPU: its parts work on a processor, both sides compute the same, and without a GPU it says so."""

from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from benchmarks.goals import OWN_BF16, OWN_PLAIN, TUNED
from benchmarks.settings import Settings

LENGTH = 32


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Those of a compiler are its own.
def test_both_sides_take_the_same_steps_on_any_device(tmp_path: Path) -> None:
    torch.compiler.reset()
    settings = Settings(scratch=tmp_path, quick=True, rounds=2)
    report = gpu.measured(torch.device("cpu"), settings, backend="eager", lengths=(LENGTH,))
    assert report.sound, report.checks
    (table,) = report.tables
    assert [row[2] for row in table.rows] == [TUNED, OWN_PLAIN, OWN_BF16]
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert [bool(row[6]) for row in table.rows] == [True, True, False]
    assert any("compiled blocks in" in note for note in report.notes)
    for each in report.measurements:
        assert len(each["seconds"]) == 2
        assert each["tokens"] == 2 * 2 * LENGTH  # Steps and whole blocks.
        assert 0 < each["flops"] / min(each["seconds"]) < each["peak"]


def test_without_a_gpu_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = gpu.run(Settings(scratch=tmp_path, quick=True))
    assert report.sound
    assert not report.tables
    assert "needs a CUDA GPU" in report.notes[0]


def test_a_padded_batch_is_not_left_without_its_mask() -> None:
    mask = torch.tensor([[1, 1], [1, 0]])
    with pytest.raises(ValueError, match="unequal length"):
        gpu._unmasked({"input_ids": mask, "attention_mask": mask})
