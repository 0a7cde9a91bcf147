"""A process killed by SIGKILL between two checkpoints, and the same command again."""

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from toy_runs import CLEAN, TOY, assert_same_files, train_toy

from maskwright.reporting.metrics import read_rows

STEPS, KILLED_AT = 80, 15
SETTINGS = (*TOY, "training.batch_sequences=24")


def kill_after(step: int, corpus: Path, out: Path) -> None:
    """Start the run in a process and kill it once its metrics hold a step."""
    call = (
        "from maskwright.training.pretrain import pretrain\n"
        f"pretrain({str(corpus)!r}, out={str(out)!r}, recipe='electra/tiny', steps={STEPS}, set={SETTINGS!r}, "
        f"clean={CLEAN!r}, workers=1, checkpoint_minutes=0.002)"
    )
    process = subprocess.Popen([sys.executable, "-c", call], stderr=subprocess.DEVNULL)
    while process.poll() is None:
        rows = read_rows(out / "metrics.jsonl")
        if rows and rows[-1]["step"] >= step and list((out / "checkpoints").glob("step-*")):
            break
        time.sleep(0.05)
    process.kill()
    assert process.wait() < 0, "the run ended by itself"


@pytest.mark.slow  # It starts a process that trains for many steps.
def test_a_run_killed_by_the_system_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    train = partial(train_toy, tmp_path, recipe="electra/tiny", steps=STEPS, set=SETTINGS)
    expected = train("uninterrupted")
    kill_after(KILLED_AT, tmp_path / "corpus.txt", tmp_path / "killed")
    resumed = train("killed")
    assert resumed.finished
    assert expected.epochs > 1
    assert_same_files(expected, resumed, "generator/model.safetensors")
