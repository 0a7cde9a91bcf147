"""The jobs for a GPU: their recipes exist, they run at toy size on a CPU, and their results become tables."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.__main__ import main
from benchmarks.gpu.jobs import JOBS
from benchmarks.gpu.report import report
from maskwright.core.spec import override, parse_overrides
from maskwright.recipes.catalog import resolve
from tests.training.toy_runs import write_corpus

CASES = [case for job in JOBS.values() for case in job.cases]


def lines_of(*lines: dict[str, Any]) -> str:
    return "".join(json.dumps({"seconds": 1.0, **line}) + "\n" for line in lines)


def test_cases_of_all_jobs_have_different_names() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_recipes_of_jobs_are_valid() -> None:
    for case in CASES:
        if case.recipe:
            override(resolve(case.recipe), parse_overrides(case.set))


def test_cases_need_runs_of_the_cases_before_them() -> None:
    trained = set[str]()
    for case in CASES:
        assert not case.run or case.run in trained
        trained |= {case.name} if case.kind == "train" else set()


@pytest.mark.slow
def test_a_job_runs_at_toy_size_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "cache"))
    corpora = [f"--corpus={write_corpus(tmp_path / f'{seed}.txt', documents=200, seed=seed)}" for seed in range(2)]
    arguments = ["muon", "--toy", *corpora, f"--data={tmp_path}", f"--out={tmp_path / 'out'}", "--workers=1"]
    assert main(arguments) == 0
    text = (tmp_path / "out" / "results.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    ended = {line["case"] for line in lines if line["part"] == "end"}
    assert {case.name for case in JOBS["muon"].cases} <= ended
    assert all(line["run"]["finished"] for line in lines if line["part"] == "run")
    losses = [line["scores"]["token_loss"] for line in lines if line["part"] == "masked"]
    assert len(losses) == len(JOBS["muon"].cases)
    assert min(losses) > 0
    assert main(arguments) == 0
    assert (tmp_path / "out" / "results.jsonl").read_text(encoding="utf-8") == text
    assert "2 of 2 cases ended" in report([text])


def test_report_has_a_row_for_each_run_and_names_the_next_job() -> None:
    def run(loss: float, f1: float) -> str:
        result = {"tokens": 2_000_000, "seconds": 4.0, "flops": 3e15}
        scores = {"f1": {"mean": f1, "sd": 0.02, "best": f1}, "accuracy": {"mean": 0.0, "sd": 0.0, "best": 0.0}}
        return lines_of(
            {"case": "pairs NSP", "part": "run", "run": result, "messages": {"kernels": ["verified"]}},
            {"case": "pairs NSP", "part": "masked", "scores": {"word_loss": loss, "word_accuracy": 0.25}},
            {"case": "pairs NSP", "part": "end"},
            {"case": "pairs NSP mrpc", "part": "mrpc", "metric": "f1", "split": "dev", "seeds": 3, "scores": scores},
            {"case": "pairs NSP blimp", "part": "error", "error": "Traceback\nOSError: no pairs"},
        )

    call = {"part": "call", "jobs": ["pairs"], "date": "2026-11-27", "device": "H100", "cases": 3, "not_ended": 1}
    one = run(4.0, 0.5) + lines_of({**call, "minutes": 7.5})
    text = report([one])
    row = "| NSP | 2.00 | 3.00 | 4.00 | 500,000 | verified | 4.00 | 25.0 | 50.0 ± 2.0 (3) | OSError: no pairs |"
    assert "mrpc, f1 (dev), % | error |" in text
    assert row in text
    assert "| 2026-11-27 | pairs | H100 | 7.50 | 2 of 3 cases ended |" in text
    assert "Next: `checks`." in text
    assert report([one, one]) == text  # A file that another one continues.
    assert "| 5.00 ± 1.4 (2) | 25.0 ± 0 (2) |" in report([run(4.0, 0.5), run(6.0, 0.5)])
    done = lines_of(*({"case": case.name, "part": "end"} for case in JOBS["checks"].cases))
    assert "Next: `speed`." in report([done])
    again = lines_of({"case": "pairs NSP blimp", "part": "end"})
    assert "no pairs" not in report([one + again])


def test_report_keeps_tables_that_a_case_measured() -> None:
    table = {"title": "natural", "columns": ["contender", "tokens/s"], "rows": [["maskwright", "5"]], "words": 1}
    text = report([lines_of({"case": "speed natural", "part": "natural", **table})])
    assert "**natural**\n\n| contender | tokens/s |\n| --- | ---: |\n| maskwright | 5 |" in text
