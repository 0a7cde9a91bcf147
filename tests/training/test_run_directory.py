"""The folder of a run: whose it is, what is protected in it."""

from pathlib import Path

import pytest

from maskwright.core.errors import CheckpointError, DeviceError
from maskwright.core.storage.files import checksum
from maskwright.training.runs.run_directory import RunDirectory, Work

REQUEST = {"seed": 0}
FIRST = {"loss": 1.0}


def begun(path: Path, work: Work, *files: str) -> None:
    folder = RunDirectory(path, work, "runs/**/seed-*" if work == "fine-tuning" else "checkpoints/step-*")
    folder.write_record({**folder.open(REQUEST), "result": FIRST})
    folder.close()
    for name in files:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("precious")


def opened(path: Path, work: Work, request: dict[str, int]) -> dict[str, object]:
    folder = RunDirectory(path, work, "runs/**/seed-*" if work == "fine-tuning" else "checkpoints/step-*")
    try:
        return folder.open(request)
    finally:
        folder.close()


@pytest.mark.parametrize(("first", "second"), [("pretraining", "fine-tuning"), ("fine-tuning", "pretraining")])
def test_the_other_kind_of_work_is_refused_even_if_the_request_is_the_same(first, second, tmp_path):
    begun(tmp_path, first, "model.safetensors")
    with pytest.raises(CheckpointError, match=f"holds a {first}, and a {second} would write"):
        opened(tmp_path, second, REQUEST)
    assert opened(tmp_path, first, REQUEST)["result"] == FIRST
    assert (tmp_path / "model.safetensors").read_text() == "precious"


@pytest.mark.parametrize("harm", ["record", "file", "file gone"])
def test_a_file_that_a_run_depends_on_is_compared_with_its_checksum(tmp_path: Path, harm: str) -> None:
    folder, recipe = RunDirectory(tmp_path), tmp_path / "recipe.json"
    recipe.write_text("{}")
    folder.write_record({"request": REQUEST, "files": {"recipe.json": checksum(recipe)}})
    (tmp_path / "checkpoints" / "step-000000001").mkdir(parents=True)  # of an earlier version: without copies
    assert opened(tmp_path, "pretraining", REQUEST)["request"] == REQUEST
    if harm == "record":
        (tmp_path / "run.json").write_text((tmp_path / "run.json").read_text().replace('"seed": 0', '"seed": 1'))
    elif harm == "file":
        recipe.write_text("{ }")
    else:
        recipe.unlink()
    with pytest.raises(CheckpointError, match=r"is damaged: (run|recipe)\.json .*Restore that file"):
        opened(tmp_path, "pretraining", REQUEST)


def test_a_lock_that_is_a_link_is_refused_and_its_target_kept(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "thesis")
    with pytest.raises(DeviceError, match=r"cannot write .*\.lock"):
        opened(tmp_path / "run", "pretraining", REQUEST)
    assert (tmp_path / "thesis").read_text() == "precious"


@pytest.mark.parametrize(
    ("work", "kept"),
    [
        ("pretraining", "checkpoints/step-000000001/x"),
        ("pretraining", "model.safetensors"),
        ("fine-tuning", "runs/learning_rate=0.1/seed-0/run.json"),
        ("fine-tuning", "model.safetensors"),
    ],
)
def test_a_model_is_protected_as_checkpoints_are(work: Work, kept: str, tmp_path: Path) -> None:
    begun(tmp_path, work, kept)
    with pytest.raises(CheckpointError, match="holds another run: seed was 0, now 1"):
        opened(tmp_path, work, {"seed": 1})
    with pytest.raises(CheckpointError, match="run: precision was not set, now 'fp32'"):
        opened(tmp_path, work, {**REQUEST, "precision": "fp32"})
    assert opened(tmp_path, work, REQUEST)["result"] == FIRST


def test_what_ended_before_anything_was_kept_protects_nothing(tmp_path: Path) -> None:
    begun(tmp_path, "pretraining")
    assert opened(tmp_path, "pretraining", {"seed": 1}) == {"request": {"seed": 1}}


def test_a_start_that_fails_leaves_no_folder_of_its_own(tmp_path: Path) -> None:
    opened(tmp_path / "new", "pretraining", REQUEST)
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    opened(tmp_path / "old", "pretraining", REQUEST)
    (tmp_path / "old" / "thesis.tex").write_text("precious")
    with pytest.raises(CheckpointError, match=r"holds no run \(found thesis.tex\)"):
        opened(tmp_path / "old", "pretraining", REQUEST)
    assert (tmp_path / "old" / "thesis.tex").read_text() == "precious"
    begun(tmp_path / "begun", "pretraining")
    opened(tmp_path / "begun", "pretraining", REQUEST)
    assert (tmp_path / "begun" / "run.json").is_file()


@pytest.mark.parametrize("refused", [True, False])
def test_only_own_temporary_files_are_removed_and_none_from_a_folder_that_is_refused(refused, tmp_path):
    (tmp_path / ".notes.tmp").mkdir()
    (tmp_path / ".draft.tmp").write_text("precious")
    (tmp_path / ".run.json.0a1b2c3d.tmp").write_text("{")
    if refused:
        (tmp_path / "main.py").write_text("precious")
        with pytest.raises(CheckpointError, match="is not empty"):
            opened(tmp_path, "pretraining", REQUEST)
    else:
        opened(tmp_path, "pretraining", REQUEST)
    left = {path.name for path in tmp_path.iterdir()}
    assert left >= {".notes.tmp", ".draft.tmp"}
    assert (".run.json.0a1b2c3d.tmp" in left) == refused
    assert (".lock" in left) == (not refused)
