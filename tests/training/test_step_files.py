"""The files of a training step are those that docs/architecture.md lists."""

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from toy_runs import train_toy

from maskwright.training.runs import run
from maskwright.training.steps import loop
from maskwright.training.steps.step import Step
from tests.docs_pages import ROOT, page

SOURCE = ROOT / "src/maskwright"


@pytest.mark.slow
def test_the_list_of_a_steps_files_is_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file counts if one of its functions is called between a report and the next update, or prepares a batch.

    Of the kernels only the interface counts.
    """
    called, is_step, update = set[str](), False, Step.update

    def record(frame: FrameType, event: str, _: object) -> None:
        is_counted = is_step or threading.current_thread().name.startswith("batches")
        if is_counted and event == "call" and not frame.f_code.co_name.startswith("<"):
            called.add(frame.f_code.co_filename)

    def train(*arguments: Any, **named: Any) -> Iterator[loop.StepReport]:
        nonlocal is_step
        for report in loop.train(*arguments, **named):
            yield report
            is_step = True

    def update_then_stop(*arguments: Any) -> None:
        nonlocal is_step
        update(*arguments)
        is_step = False

    monkeypatch.setattr(run, "train", train)
    monkeypatch.setattr(Step, "update", update_then_stop)
    before = sys.getprofile()
    sys.setprofile(record)
    threading.setprofile(record)  # Of threads that begin later.
    try:
        train_toy(tmp_path, steps=4)
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    files = {Path(name).relative_to(SOURCE).as_posix() for name in called if Path(name).is_relative_to(SOURCE)}
    files -= {name for name in files if name.startswith("kernels/") and name != "kernels/ops.py"}
    text = page("architecture.md").partition("### Which files does a step of training use?\n")[2].partition("\n### ")[0]
    listed = {name for row in re.findall(r"^\| .*", text, re.MULTILINE) for name in re.findall(r"`([\w/]+\.py)`", row)}
    assert (sorted(listed - files), sorted(files - listed)) == ([], [])
