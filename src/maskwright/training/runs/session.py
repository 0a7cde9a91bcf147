"""A session of a run: its directory is locked, its problems are recorded, and its mirror gets a copy."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from maskwright.core.errors import MaskwrightError
from maskwright.reporting.reporter import Reporter
from maskwright.training.ranks.distributed import on_rank_zero, rank
from maskwright.training.runs.mirror import Mirror
from maskwright.training.runs.run_directory import Extend, RunDirectory


@contextlib.contextmanager
def open_session(
    directory: RunDirectory,
    request: Mapping[str, Any],
    reporter: Reporter,
    mirror_url: str | None = None,
    extend: Extend | None = None,
) -> Iterator[tuple[dict[str, Any], Callable[[], None]]]:
    """Lock a run directory while the block runs, and copy it to its mirror afterwards.

    Yields its `run.json` as it was opened, on every rank, and what copies it to the mirror after a checkpoint.

    `RunDirectory.open` creates or restores the directory, from the mirror if there is none. An error of the block is
    written into run.json as "problem".
    """
    is_open = False
    try:
        mirror = Mirror(mirror_url, directory.path, reporter) if mirror_url is not None and rank() == 0 else None

        def open_directory() -> dict[str, Any]:
            if mirror is not None:
                mirror.restore(request)
            return directory.open(request, extend)

        record = on_rank_zero(open_directory)
        is_open = rank() == 0
        for note in directory.notes:
            reporter.message("restored", note)
        yield record, mirror.try_upload if mirror is not None else lambda: None
        is_open = False  # A copy that fails is no problem of the run.
        if mirror is not None:
            mirror.finish()
    except MaskwrightError as error:
        if is_open:
            directory.record_problem(error)
        raise
    except KeyboardInterrupt:
        reporter.message(
            "stopped",
            "after the last checkpoint; the same command resumes from it"
            if directory.has_checkpoint()
            else "before the first checkpoint; the same command starts again with what is prepared",
        )
        raise
    finally:
        directory.close()
