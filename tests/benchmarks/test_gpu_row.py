"""The row of the GPU: its parts work on a processor, both sides compute the same, and without a GPU it says so."""

import operator
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import contest, gpu
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
    assert [name for name in table.columns if name != "length"] == list(contest.COLUMNS)
    assert [bool(row[table.columns.index("maskwright is faster by")]) for row in table.rows] == [True, True, False]
    assert any("compiled blocks in" in note for note in report.notes)
    for each in report.measurements:
        assert len(each["seconds"]) == 2
        assert each["tokens"] == [2 * 2 * LENGTH] * 2  # Steps and whole blocks, in each round.
        assert each["fill"] == 1.0
        assert (each["flops"] is None) == (each["ratio"] is not None) == (each["side"] != OWN_BF16)
        if each["flops"]:
            assert 0 < max(map(operator.truediv, each["flops"], each["seconds"])) < each["peak"]


def test_without_a_gpu_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = gpu.run(Settings(scratch=tmp_path, quick=True))
    assert report.sound
    assert not report.measured
    assert "needs a CUDA GPU" in report.notes[0]


def test_without_a_gpu_what_was_measured_before_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = ["gpu", "--quick", "--results", str(tmp_path), "--allocator", "plain"]
    assert command.main(words) == 0
    assert not list(tmp_path.iterdir())
    (tmp_path / "gpu.json").write_text("measured on a GPU")
    assert command.main(words) == 0
    assert (tmp_path / "gpu.json").read_text() == "measured on a GPU"


def test_a_padded_batch_is_not_left_without_its_mask() -> None:
    mask = torch.tensor([[1, 1], [1, 0]])
    with pytest.raises(ValueError, match="unequal length"):
        gpu._unmasked({"input_ids": mask, "attention_mask": mask})
