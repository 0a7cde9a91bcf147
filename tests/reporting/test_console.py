"""Screen output of a run on a console that is not a terminal."""

import io
import os
import sys

import pytest
from rich.console import Console

from maskwright.reporting.console import ConsoleReporter


def test_without_a_terminal_the_last_state_of_each_stage_is_printed() -> None:
    written = io.StringIO()
    with ConsoleReporter(Console(file=written, width=100)) as reporter:
        for done in range(1, 7):
            reporter.stage("deduplicating (blocks)", done, 6)
        reporter.stage("reading", 0, None)
        reporter.stage("reading", 120, None)
        reporter.stage("checking files (bytes)", 22_190_992, 22_190_992)
        reporter.message("data", "ready")
        reporter.training(0.1, "step 1")
        reporter.training(0.2, "step 2")
        reporter.stage("embedding", 1, 1)
    assert [line.strip() for line in written.getvalue().splitlines()] == [
        "deduplicating 17%  1 of 6 blocks",
        "deduplicating 100%  6 of 6 blocks",
        "reading  0",
        "reading  120",
        "checking files 100%  22.2 of 22.2 MB",
        "data       ready",
        "training 10%  step 1",
        "embedding 100%  1 of 1",
    ]


def test_a_closed_pipe_stops_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", buffering=1) as pipe:
        monkeypatch.setattr(sys, "stderr", pipe)
        with ConsoleReporter() as reporter:
            for number in range(3):
                reporter.message("data", f"line {number}")
                reporter.training(0.1, "step 1")
        monkeypatch.undo()
        with pytest.raises(BrokenPipeError):
            print("x", file=pipe, flush=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)  # so that it can be closed
