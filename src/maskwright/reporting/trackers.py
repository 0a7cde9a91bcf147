"""Experiment trackers, which show a run's metrics: TensorBoard, Weights & Biases, MLflow, Trackio.

accelerate's trackers (`accelerate.tracking`) are not used: importing them takes 2 s, they need its global state, and
they cannot resume a run (no `purge_step`, no id of a run of W&B or Trackio that is kept in its folder).
"""

import contextlib
import io
import os
import re
import shutil
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

from maskwright.core.errors import JsonError, MaskwrightError, first_line, unknown_name
from maskwright.core.extras import require
from maskwright.core.storage.files import read_object, refuse_removed, write_json
from maskwright.reporting.reporter import Reporter

TRACKING = "tracking.json"
"""In a run's folder: the id of the tracked run, by tracker."""
TRACKER_FOLDERS = ("tensorboard", "wandb")
"""In a run's folder: what trackers write there."""
TRACKER_FILES = (TRACKING, *(f"{name}/*" for name in TRACKER_FOLDERS))
"""Patterns of all that is not the run's own."""
_PROJECT = "maskwright"

Status = Literal["FINISHED", "FAILED", "KILLED"]
"""State at the end of a session of a run; KILLED if it was interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """A run as trackers show it.

    Attributes:
        id: In the tracker; None for a new run.
        settings: Plain data, perhaps nested.
        last_step: Steps done so far; numbers of later ones are from before a kill, and are written again.
    """

    folder: Path
    name: str
    settings: Mapping[str, Any]
    last_step: int = 0
    id: str | None = None


class Tracker(Protocol):
    """One tracked run, new or resumed. Its methods may raise any error of its library.

    Attributes:
        id: Identifies the run to the next session.
        where: Address or command that shows it; "" if `folder` says so.
    """

    id: str
    where: str

    def log(self, numbers: Mapping[str, float], step: int) -> None: ...

    def close(self, status: Status) -> None: ...


class _TensorBoard:
    id = where = ""

    def __init__(self, run: TrackedRun) -> None:
        folder = run.folder / "tensorboard"
        if not run.last_step:
            shutil.rmtree(folder, ignore_errors=True)  # Left by a run that never reached a checkpoint.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Deprecations inside TensorBoard.
            from torch.utils.tensorboard import SummaryWriter

            self._writer: Any = SummaryWriter(str(folder), purge_step=run.last_step + 1 if run.last_step else None)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self, status: Status) -> None:
        self._writer.close()


class _WandB:
    def __init__(self, run: TrackedRun) -> None:
        import wandb

        self.id = run.id or uuid.uuid4().hex[:12]
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            id=self.id,
            name=run.name,
            config=dict(run.settings),
            dir=run.folder,
            resume="allow",
            settings=wandb.Settings(silent=True, console="off"),
        )
        # W&B's own steps cannot go back to those of a checkpoint.
        self._run.define_metric("*", step_metric="step")
        self.where = f"wandb sync {self._run.settings.sync_dir}" if self._run.offline else self._run.url or ""

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._run.log({**numbers, "step": step})

    def close(self, status: Status) -> None:
        # 255 is W&B's code for Ctrl-C.
        self._run.finish(exit_code={"FINISHED": 0, "FAILED": 1, "KILLED": 255}[status])


class _MLflow:
    def __init__(self, run: TrackedRun) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._metric, self._client = Metric, MlflowClient()
        self._sent: Any = None
        if run.id is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
            known = self._client.get_experiment_by_name(name)
            experiment = self._client.create_experiment(name) if known is None else known.experiment_id
            self.id: str = self._client.create_run(experiment, run_name=run.name).info.run_id
            settings = [Param(self._valid(name), str(value)[:500]) for name, value in _flat(run.settings)]
            for first in range(0, len(settings), 100):  # MLflow's limit of a call.
                self._client.log_batch(self.id, params=settings[first : first + 100])
        else:
            self.id = run.id
            self._client.update_run(self.id, status="RUNNING")
        self.where = f"run {self.id} in {self._client.tracking_uri}"

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        now = int(1000 * time.time())
        metrics = [self._metric(self._valid(name), value, now, step) for name, value in numbers.items()]
        self._wait()
        self._sent = self._client.log_batch(self.id, metrics=metrics, synchronous=False)

    def close(self, status: Status) -> None:
        self._wait()
        self._client.set_terminated(self.id, status)

    def _wait(self) -> None:
        """Wait until the last numbers are written; raises MlflowException if they cannot be."""
        if self._sent is not None:
            self._sent.wait()

    @staticmethod
    def _valid(name: str) -> str:
        return re.sub(r"[^/\w. -]", "_", name)  # the characters that all versions of MLflow accept


class _Trackio:
    def __init__(self, run: TrackedRun) -> None:
        import trackio

        project = os.environ.get("TRACKIO_PROJECT", _PROJECT)
        self.id = run.id or f"{run.name}-{uuid.uuid4().hex[:6]}"
        with contextlib.redirect_stdout(io.StringIO()):
            self._run = trackio.init(
                project=project, name=self.id, config=dict(run.settings), resume="allow", embed=False
            )
        self._finish = trackio.finish  # That of the run alone is repeated at exit.
        self.where = f"trackio show --project {project}"

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self, status: Status) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self._finish()


_TRACKERS: Mapping[str, Callable[[TrackedRun], Tracker]] = {
    "tensorboard": _TensorBoard,
    "wandb": _WandB,
    "mlflow": _MLflow,
    "trackio": _Trackio,
}


def choose_trackers(names: Sequence[str] | None) -> tuple[str, ...]:
    """Check the names of trackers, perhaps in one string; None is TensorBoard, if installed, and "none" no tracker.

    Raises MaskwrightError if a name is unknown, its library is not installed, or "none" is not the only name.
    """
    if names is None:
        return ("tensorboard",) if find_spec("tensorboard") else ()
    chosen = tuple(dict.fromkeys(names.split(",") if isinstance(names, str) else names))
    if chosen == ("none",):
        return ()
    if "none" in chosen:
        raise MaskwrightError(f"--report-to {','.join(chosen)} combines none with trackers", hint="Leave out none.")
    for name in chosen:
        if name not in _TRACKERS:
            raise unknown_name(MaskwrightError, "tracker", name, [*_TRACKERS, "none"], "--report-to: ")
        require(f"--report-to {name}", name, name)
    return chosen


class Trackers:
    """The trackers of a session. One that fails is left out from then on, with a message: a run never stops for it."""

    def __init__(self, names: Sequence[str], run: TrackedRun, reporter: Reporter) -> None:
        self._run, self._reporter = run, reporter
        self._trackers: dict[str, Tracker] = {}
        path, ids = run.folder / TRACKING, dict[str, str]()
        with contextlib.suppress(FileNotFoundError, JsonError):
            ids = read_object(path)
        with contextlib.ExitStack() as at_end:
            if "tensorboard" in names:
                at_end.enter_context(_without_tracebacks_of_tensorboard())
            for name in names:
                with self._left_out_if_it_fails(name):
                    tracker = self._trackers[name] = _TRACKERS[name](replace(run, id=ids.get(name)))
                    if tracker.where:
                        reporter.message("tracking", f"{name}: {tracker.where}")
                    if tracker.id:
                        ids[name] = tracker.id
                        write_json(path, ids)
            self._at_end = at_end.pop_all()

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Send numbers of a step to all trackers."""
        for name, tracker in [*self._trackers.items()]:
            with self._left_out_if_it_fails(name):
                tracker.log(numbers, step)

    def close(self, status: Status = "FINISHED") -> None:
        """End the tracked runs of this session; the next session resumes them."""
        with self._at_end:
            for name, tracker in [*self._trackers.items()]:
                with self._left_out_if_it_fails(name):
                    tracker.close(status)

    @contextlib.contextmanager
    def _left_out_if_it_fails(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # Of any library, and of its service.
            refuse_removed(self._run.folder)
            self._trackers.pop(name, None)
            text = f"cannot write to {name} ({first_line(error)}); training continues without it"
            self._reporter.message("warning", text)


def status_at_end(error: type[BaseException] | None, is_finished: bool) -> Status:
    """Return the status of a training that ends with an error, or None."""
    if error is None:
        return "FINISHED" if is_finished else "KILLED"
    return "FAILED" if issubclass(error, Exception) else "KILLED"


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings by their names with dots."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


@contextlib.contextmanager
def _without_tracebacks_of_tensorboard() -> Iterator[None]:
    """Print no traceback of a failed write in TensorBoard's thread: its next call raises the error here."""
    previous = threading.excepthook

    def hook(failure: threading.ExceptHookArgs) -> None:
        if not (isinstance(failure.exc_value, OSError) and type(failure.thread).__module__.startswith("tensorboard")):
            previous(failure)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = previous
