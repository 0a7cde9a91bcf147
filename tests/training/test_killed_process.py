"""A process killed by SIGKILL between two checkpoints, and the same command again."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from toy_runs import CLEAN, TOY, assert_same_files, kill_process, train_toy

from maskwright.reporting.metrics import read_rows


@pytest.mark.slow  # It starts a process that trains for many steps.
def test_a_run_killed_by_the_system_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"recipe": "electra/tiny", "steps": 80, "set": (*TOY, "training.batch_sequences=24")}
    train, out = partial(train_toy, tmp_path, **settings), tmp_path / "killed"
    expected = train("uninterrupted")

    def has_trained() -> bool:
        rows = read_rows(out / "metrics.jsonl")
        return bool(rows) and rows[-1]["step"] >= 15 and any((out / "checkpoints").glob("step-*"))

    paths = {"corpus": str(tmp_path / "corpus.txt"), "out": str(out)}
    kill_process(has_trained, **paths, clean=CLEAN, workers=1, checkpoint_minutes=0.002, **settings)
    resumed = train("killed")
    assert resumed.finished
    assert expected.epochs > 1
    assert_same_files(expected, resumed, "generator/model.safetensors")
