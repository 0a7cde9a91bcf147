"""What the comparison of two runs notices; a whole comparison is in `tests/cli/test_verify_resume_command.py`."""

from pathlib import Path

import pytest

from maskwright.core.files import write_json
from maskwright.training.verify_resume import compare

METRICS = '{"step": 1}\n{"step": 2}\n'


@pytest.mark.parametrize(
    ("file", "content", "metrics_equal", "weights_equal", "difference"),
    [
        ("", "", True, True, ""),
        ("metrics.jsonl", '{"step": 1}\n{"step": 3}\n', False, True, '{"step": 2} / {"step": 3}'),
        ("metrics.jsonl", '{"step": 1}\n', False, True, "2 lines / 1 lines"),
        ("model.safetensors", "other weights", True, False, ""),
        ("generator/model.safetensors", "other weights", True, False, ""),
    ],
)
def test_any_difference_is_noticed(
    file: str, content: str, metrics_equal: bool, weights_equal: bool, difference: str, tmp_path: Path
) -> None:
    for name in ("peace", "killed"):
        (tmp_path / name / "generator").mkdir(parents=True)
        write_json(tmp_path / name / "run.json", {"result": {"steps": 2, "epochs": 1.5}})
        (tmp_path / name / "metrics.jsonl").write_text(METRICS, encoding="utf-8")
        for weights in ("model.safetensors", "generator/model.safetensors"):
            (tmp_path / name / weights).write_text("weights", encoding="utf-8")
    if file:
        (tmp_path / "killed" / file).write_text(content, encoding="utf-8")
    verdict = compare("electra/tiny", tmp_path, (1,))
    assert (verdict.metrics_equal, verdict.weights_equal) == (metrics_equal, weights_equal)
    assert verdict.equal == (metrics_equal and weights_equal)
    assert verdict.first_difference == difference
    assert (verdict.steps, verdict.epochs, verdict.killed_at) == (2, 1.5, (1,))
