"""Measuring in turns, with contenders that do nothing but count."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import runner
from benchmarks.runner import (
    Contender,
    ContenderError,
    Outcome,
    Settings,
    Spread,
    background,
    busy_processes,
    measure,
)
from benchmarks.table import Table, compare, number

ORDER: list[str] = []


class Fake:
    """Says what it was made with."""

    def __init__(self, name: str, seconds: float = 1.0, fails_at: int = -1) -> None:
        self._name, self._seconds, self._fails_at, self._runs = name, seconds, fails_at, 0

    def run(self) -> dict[str, Any]:
        ORDER.append(self._name)
        self._runs += 1
        if self._runs == self._fails_at:
            raise ValueError("cannot go on")
        return {"work": 10, "seconds": self._seconds * self._runs}


def _contender(name: str, **options: Any) -> Contender:
    return Contender(name=name, make=f"{__name__}:Fake", options={"name": name, **options})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    ORDER.clear()
    return Settings(scratch=tmp_path, in_process=True)


def test_contenders_take_turns_and_warm_up_is_not_counted(settings: Settings) -> None:
    first, second = measure([_contender("a"), _contender("b", seconds=2.0)], settings, rounds=2, warm_up=1)
    assert ORDER == ["a", "b", "b", "a", "a", "b"]
    assert [each["seconds"] for each in first.rounds] == [2.0, 3.0]
    assert first.ratio(second) == Spread(2.0, 2.0, 2.0)


@pytest.mark.parametrize("broken", [_contender("b", fails_at=2), Contender(name="b", make="benchmarks.no_such:Thing")])
def test_the_others_are_measured_when_one_fails(settings: Settings, broken: Contender) -> None:
    first, second = measure([_contender("a"), broken], settings, rounds=2)
    assert len(first.rounds) == 2
    assert second.rounds == []
    assert second.problem
    assert first.ratio(second) is None
    assert second.problem in compare("", [first, second], "tokens/s").markdown()


def test_a_child_process_has_its_own_environment_and_is_stopped_between_turns(tmp_path: Path) -> None:
    shows = Contender(name="set", make="tests.benchmarks.test_runner:Environment", env={"GOMP_SPINCOUNT": "7"})
    plain = Contender(name="plain", make="tests.benchmarks.test_runner:Environment")
    dies = Contender(name="dies", make="tests.benchmarks.test_runner:Dies")
    actual, other, dead = measure([shows, plain, dies], Settings(scratch=tmp_path), rounds=2, warm_up=0)
    assert [each["work"] for each in actual.rounds] == [7, 7]
    assert [each["work"] for each in other.rounds] == [0, 0]
    assert actual.rounds[0]["peak"] is None or actual.rounds[0]["peak"] > 1e6
    assert "exit code 3" in dead.problem


class Environment:
    """Returns a variable of its process as its work."""

    def run(self) -> dict[str, Any]:
        import os

        return {"work": int(os.environ.get("GOMP_SPINCOUNT", "0")), "seconds": 1.0}


class Dies:
    """Ends its process."""

    def run(self) -> dict[str, Any]:
        import os

        os._exit(3)


def test_busy_processes_end_with_the_block() -> None:
    psutil = pytest.importorskip("psutil")
    before = len(psutil.Process().children())
    with busy_processes(2):
        assert len(psutil.Process().children()) == before + 2
    assert len(psutil.Process().children()) == before


def test_busy_processes_end_when_their_parent_is_killed() -> None:
    """They hold the pipe of stderr, whose end is what `run` waits for."""
    code = "import os\nfrom benchmarks.runner import busy_processes\nwith busy_processes(1): os._exit(0)"
    subprocess.run([sys.executable, "-c", code], cwd=runner.ROOT, stderr=subprocess.PIPE, timeout=20, check=True)


def test_spread_and_numbers() -> None:
    assert Spread.of([4.0]) == Spread(4.0, 4.0, 4.0)
    assert Spread.of([1.0, 2.0, 3.0, 4.0, 5.0]) == Spread(3.0, 2.0, 4.0)
    assert [number(value) for value in (14229.3, 0.9, 0.0000012, 0)] == ["14,200", "0.900", "1.20e-06", "0"]
    assert Outcome("a", [{"work": 1, "seconds": 2.0, "ms": 4.0}, {"work": 1, "seconds": 4.0}]).median("ms") == 4.0


def test_cells_with_bars_stay_one_cell() -> None:
    assert Table("", ("a", "b"), [("x|y", "1")]).markdown().splitlines()[-1] == "| x\\|y | 1 |"


class Counts:
    """Writes how often it counted."""

    def __init__(self, file: str, most: int) -> None:
        self._file, self._most = Path(file), most

    def run(self) -> dict[str, Any]:
        for count in range(self._most):
            self._file.write_text(str(count), encoding="ascii")
        return {}


def test_background_work_continues_within_the_context_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_BACKGROUND_SECONDS", 0.2)
    file = tmp_path / "count"
    options = {"file": str(file), "most": 10**9}
    with background(Contender(name="a", make="tests.benchmarks.test_runner:Counts", options=options)) as beside:
        stopped = _settled(file)
        with beside():
            _wait_for(lambda: file.read_text(encoding="ascii") not in ("", stopped))
    options["most"] = 1
    with (
        background(Contender(name="a", make="tests.benchmarks.test_runner:Counts", options=options)) as beside,
        pytest.raises(ContenderError, match="a ended"),
        beside(),
    ):
        pass


def _settled(file: Path) -> str:
    """Return what a file contains, which nothing changes."""
    first = file.read_text(encoding="ascii")
    time.sleep(0.1)
    assert file.read_text(encoding="ascii") == first
    return first


def _wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_contender_that_does_not_answer_has_failed(tmp_path: Path) -> None:
    options = {"file": str(tmp_path / "count"), "most": 10**9}
    slow = Contender(name="slow", make="tests.benchmarks.test_runner:Counts", options=options)
    (outcome,) = measure([slow], Settings(scratch=tmp_path), rounds=1, warm_up=0, limit=0.2)
    assert outcome.problem == "no answer within 0.2 s"


class SlowStart:
    """Takes longer to set up than to run."""

    def __init__(self) -> None:
        time.sleep(0.5)

    def run(self) -> dict[str, Any]:
        return {"work": 1, "seconds": 1.0}


def test_the_limit_does_not_count_setting_up(tmp_path: Path) -> None:
    slow = Contender(name="slow", make="tests.benchmarks.test_runner:SlowStart")
    (outcome,) = measure([slow], Settings(scratch=tmp_path), rounds=1, warm_up=0, limit=0.5)
    assert not outcome.problem
