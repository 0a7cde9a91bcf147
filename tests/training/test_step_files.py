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
from tests.docs_pages import ROOT, page

SOURCE = ROOT / "src/maskwright"


@pytest.mark.slow
def test_the_list_of_a_steps_files_is_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file counts if one of its functions is called, in any thread; of the kernels only their interface."""
    called, is_step = set[str](), False

    def record(frame: FrameType, event: str, _: object) -> None:
        if is_step and event == "call" and not frame.f_code.co_name.startswith("<"):
            called.add(frame.f_code.co_filename)

    def train(*arguments: Any, **named: Any) -> Iterator[loop.StepReport]:
        nonlocal is_step
        reports = loop.train(*arguments, **named)
        is_step = True
        for report in reports:
            is_step = False
            yield report
            is_step = True
        is_step = False

    monkeypatch.setattr(run, "train", train)
    before = sys.getprofile()
    sys.setprofile(record)
    threading.setprofile(record)  # Of threads that begin later.
    try:
        train_toy(tmp_path, steps=4)
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]
    files = {Path(name).relative_to(SOURCE).as_posix() for name in called if Path(name).is_relative_to(SOURCE)}
    text = page("architecture.md").partition("### Which files does a step of training use?\n")[2].partition("\n### ")[0]
    files -= {name for name in files if name.startswith("kernels/") and name != "kernels/ops.py"}
    assert sorted(re.findall(r"`([\w/]+\.py)`", text)) == sorted(files)
