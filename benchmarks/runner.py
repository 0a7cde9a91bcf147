"""Measure contenders in turns, each in a process of its own."""

import ctypes
import fcntl
import importlib
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
_PR_SET_PDEATHSIG = 1
_BACKGROUND_SECONDS = 15.0
"""Until background work that was started computes."""

Beside = Callable[[], AbstractContextManager[None]]
"""Other work, which continues within the context."""


class ContenderError(Exception):
    """A contender cannot be set up or run here; the others are measured nevertheless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options of the command line.

    Attributes:
        scratch: A folder that is removed afterwards.
        quick: Toy sizes.
        rounds: Timed rounds; None for the suite's own number.
        cases, sizes: Names to measure; empty for all.
        contenders: Parts of names; contenders without one of them are left out. Empty for all.
        against: Name and source folder of another revision.
        in_process: Run contenders in this process (tests).
        corpus, minutes: Text and training time of `quality`.
        model: Folder of the model of `latency`, and of `finetune` on real data.
        data, results, set: Of `finetune` on real data: the folder of the datasets, where finished runs are kept, and
            overrides of maskwright's settings.
        lock: A file. Processes that share it prepare and warm up at the same time, and are timed one by one while
            nothing else of theirs runs.
    """

    scratch: Path
    quick: bool = False
    rounds: int | None = None
    cases: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    contenders: tuple[str, ...] = ()
    against: tuple[str, Path] | None = None
    in_process: bool = False
    corpus: Path | None = None
    minutes: float = 5.0
    model: Path | None = None
    data: Path | None = None
    results: Path | None = None
    set: tuple[str, ...] = ()
    lock: Path | None = None

    def wants(self, case: str) -> bool:
        """Whether a case is measured."""
        return not self.cases or case in self.cases


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One of the things compared.

    Attributes:
        name: As tables call it.
        make: "module:Class". The class takes `options`; its `run()` does the work once and returns at least "work"
            (tokens, texts, bytes) and "seconds".
        options: JSON values.
        env: Environment variables of its process.
        source: A `src` folder of another revision to import maskwright from.
    """

    name: str
    make: str
    options: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    source: Path | None = None

    def build(self) -> Any:
        """Return the object that does the work, in this process."""
        module, _, name = self.make.partition(":")
        return getattr(importlib.import_module(module), name)(**self.options)


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Describe at least one value."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of a contender: one mapping per round, in their order, or why there are none."""

    name: str
    rounds: list[dict[str, Any]]
    problem: str = ""

    @property
    def speeds(self) -> list[float]:
        """Work per second of each round."""
        return [each["work"] / each["seconds"] for each in self.rounds]

    def median(self, key: str) -> float | None:
        """Return the median of a further figure, None where the contender has none."""
        values = [each[key] for each in self.rounds if each.get(key) is not None]
        return statistics.median(values) if values else None

    def ratio(self, other: "Outcome") -> Spread | None:
        """Return how many times as fast this is as another contender, from the speeds of the same rounds."""
        if not self.rounds or not other.rounds:
            return None
        return Spread.of([speed / other_speed for speed, other_speed in zip(self.speeds, other.speeds, strict=True)])


def measure(
    contenders: Sequence[Contender],
    settings: Settings,
    *,
    rounds: int,
    warm_up: int = 1,
    beside: Beside = nullcontext,
    limit: float | None = None,
) -> list[Outcome]:
    """Run contenders in turns; each round begins with another one.

    Args:
        contenders: What to compare; their names differ.
        settings: May override `rounds`.
        rounds: Timed rounds.
        warm_up: Rounds before them that are not counted.
        beside: Other work during each run.
        limit: Seconds after which a run that has not ended has failed. Setting up may take longer.
    """
    rounds = settings.rounds or (1 if settings.quick else rounds)
    warm_up = 0 if settings.quick else warm_up
    if settings.contenders:
        contenders = [each for each in contenders if any(part in each.name for part in settings.contenders)]
    outcomes = {contender.name: Outcome(contender.name, []) for contender in contenders}
    if len(outcomes) < len(contenders):
        raise ValueError(f"contenders with the same name: {[each.name for each in contenders]}")
    with ExitStack() as stack:
        locked = stack.enter_context(lock(settings))
        running: dict[str, _Child | _Local] = {}
        for contender in contenders:
            try:
                process = _Local(contender) if settings.in_process else _Child(contender, limit)
                stack.callback(process.close)
                process.wait_until_ready()
                running[contender.name] = process
            except ContenderError as error:
                outcomes[contender.name] = Outcome(contender.name, [], str(error))
        for turn in range(warm_up + rounds):
            if locked and turn == warm_up:
                fcntl.flock(locked, fcntl.LOCK_EX)
            names = list(running)
            first = turn % max(1, len(names))
            for name in (*names[first:], *names[:first]):
                print(f"\r  round {turn - warm_up + 1} of {rounds}: {name:<40}", end="", file=sys.stderr, flush=True)
                try:
                    with beside():
                        outcome = running[name].run()
                except ContenderError as error:
                    outcomes[name] = Outcome(name, [], str(error))
                    running.pop(name).close()
                    continue
                if turn >= warm_up:
                    outcomes[name].rounds.append(outcome)
    print("\r" + " " * 60 + "\r", end="", file=sys.stderr, flush=True)
    return list(outcomes.values())


@contextmanager
def lock(settings: Settings) -> Iterator[IO[str] | None]:
    """Hold the lock of the settings together with others, if there is one: nobody is timed meanwhile."""
    if settings.lock is None:
        yield None
        return
    with open(settings.lock, "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield file


class _Local:
    """A contender in this process."""

    def __init__(self, contender: Contender) -> None:
        try:
            self._work = contender.build()
        except Exception as error:  # As in a child process: the other contenders are measured.
            raise ContenderError(_describe(error)) from error

    def wait_until_ready(self) -> None:
        pass

    def run(self) -> dict[str, Any]:
        try:
            return {**self._work.run(), "peak": peak_memory()}
        except Exception as error:
            raise ContenderError(_describe(error)) from error

    def close(self) -> None:
        self._work = None


class _Child:
    """A contender in a process group of its own, which is stopped while others run.

    An idle OpenMP thread may spin for milliseconds, with OMP_WAIT_POLICY=active for minutes: stopped, it cannot.
    """

    def __init__(self, contender: Contender, limit: float | None = None) -> None:
        self._limit = limit
        path = [str(contender.source)] if contender.source else []
        path += [value for value in [os.environ.get("PYTHONPATH", "")] if value]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.runner"],
            cwd=ROOT,
            env={**os.environ, **contender.env, "PYTHONPATH": os.pathsep.join(path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            process_group=0,
        )
        self._send({"make": contender.make, "options": dict(contender.options)})

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ContenderError("its process ended") from None

    def _receive(self, limit: float | None = None) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not self.has_answered(limit):
            raise ContenderError(f"no answer within {limit:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise ContenderError(f"its process ended with exit code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ContenderError(answer["error"])
        self.stop()
        return answer

    def has_answered(self, seconds: float | None = 0.0) -> bool:
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], seconds)[0])

    def stop(self) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def wait_until_ready(self) -> None:
        self._receive()

    def begin(self) -> None:
        self.resume()
        self._send({"do": "run"})

    def run(self) -> dict[str, Any]:
        self.begin()
        return self._receive(self._limit)

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue


@contextmanager
def background(contender: Contender) -> Iterator[Beside]:
    """Begin the one long run of a contender, stop it, and yield a context manager in which it runs."""
    child = _Child(contender)

    @contextmanager
    def beside() -> Iterator[None]:
        if child.has_answered():
            raise ContenderError(f"{contender.name} ended")
        child.resume()
        try:
            yield
        finally:
            child.stop()

    try:
        child.wait_until_ready()
        child.begin()
        time.sleep(_BACKGROUND_SECONDS)
        child.stop()
        yield beside
    finally:
        child.close()


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep so many other processes computing while the block runs."""
    # They end with this process, however that ends.
    spin = f"import os\nprint(flush=True)\nwhile os.getppid() == {os.getpid()}:\n for _ in range(10**6): pass"
    processes = [subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def settle(call: Callable[[], object], seconds: float = 0.7) -> None:
    """Call it for a while: a contender that looks at the load of the last half second sees the others' turns before."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        call()


def peak_memory() -> int | None:
    """Return the largest resident size of this process in bytes; None where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), None)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:200]}"


def _serve() -> None:
    """Answer the parent process line by line: first set up, then one run a line."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # A stopped process ends with its parent too.
    # Libraries print to standard output; the answers have it for themselves.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    work: Any = None
    for line in sys.stdin:
        message = json.loads(line)
        try:
            if "make" in message:
                work = Contender(name="", make=message["make"], options=message["options"]).build()
                answer: dict[str, Any] = {}
            else:
                answer = {**work.run(), "peak": peak_memory()}
        # A peer may fail in any way, a lack of memory included; the table then says so.
        except Exception as error:
            answer = {"error": _describe(error)}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    _serve()
