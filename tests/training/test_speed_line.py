from pathlib import Path

from maskwright.fitting.budget import Budget
from maskwright.reporting.reporter import Reporter
from maskwright.reporting.trackers import TrackedRun, Trackers
from maskwright.training.runs.metrics import MetricsLogger


def test_the_higher_of_two_peaks_counts_and_no_step_reaches_it(tmp_path: Path) -> None:
    untracked = Trackers([], TrackedRun(folder=tmp_path, name="mine", settings={}), Reporter())
    logger = MetricsLogger(tmp_path, 0, Budget("steps", 2), Reporter(), untracked, peak_flops=1e9)
    assert logger.speed_line(0.0) == "no step was done"
    logger._session[:] = 1, 100, 1.0, 0.0, 9.9e8  # Steps, tokens, seconds, seconds of waiting, FLOPs.
    assert "utilization unknown" in logger.speed_line(5e8)
    assert "50% model FLOPs utilization" in logger.speed_line(1.98e9)
    logger.close()
