from pathlib import Path

import pytest
import torch

from maskwright.core import tensor_files
from maskwright.core.errors import CheckpointError
from maskwright.training import checkpoint


def save(folder: Path, step: int) -> Path:
    return checkpoint.save(folder, step, {"at": step}, {"w": torch.full((3,), float(step))}, {"m.w": torch.ones(3)})


def test_latest_reads_back_what_was_saved(tmp_path: Path) -> None:
    save(tmp_path, 7)
    found, damaged = checkpoint.latest(tmp_path)
    assert found is not None
    assert not damaged
    assert (found.step, found.state) == (7, {"at": 7})
    assert torch.equal(found.weights["w"], torch.full((3,), 7.0))


def test_only_the_newest_two_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["step-000000002", "step-000000003"]


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path) == (None, [])


@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors", "state.json"])
def test_a_checkpoint_cut_short_is_passed_over_for_the_one_before(tmp_path: Path, name: str) -> None:
    save(tmp_path, 1)
    newest = save(tmp_path, 2)
    content = (newest / name).read_bytes()
    (newest / name).write_bytes(content[: len(content) // 2])
    found, damaged = checkpoint.latest(tmp_path)
    assert found is not None
    assert found.step == 1
    assert len(damaged) == 1
    assert "step-000000002" in damaged[0]


def test_one_flipped_byte_is_noticed(tmp_path: Path) -> None:
    newest = save(tmp_path, 2)
    content = bytearray((newest / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    (newest / "weights.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="no checkpoint is intact"):
        checkpoint.latest(tmp_path)


def test_a_save_that_fails_leaves_the_old_one_and_no_remains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensor_files, "save_file", full)
    with pytest.raises(Exception, match="disk is full"):
        save(tmp_path, 2)
    assert [folder.name for folder in tmp_path.iterdir()] == ["step-000000001"]
