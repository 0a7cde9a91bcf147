"""The jobs for a GPU: their recipes exist, and they run at toy size on a CPU."""

import json
from pathlib import Path

import pytest

from benchmarks.gpu import JOBS, main
from maskwright.core.spec import override, parse_overrides
from maskwright.recipes.catalog import resolve
from tests.training.toy_runs import write_corpus

CASES = [case for cases in JOBS.values() for case in cases]


def test_cases_of_all_jobs_have_different_names() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_recipes_of_jobs_are_valid() -> None:
    for case in CASES:
        if case.recipe:
            override(resolve(case.recipe), parse_overrides(case.set))


@pytest.mark.slow
def test_a_job_runs_at_toy_size_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "cache"))
    corpora = [f"--corpus={write_corpus(tmp_path / f'{seed}.txt', documents=200, seed=seed)}" for seed in range(2)]
    arguments = ["electra", "--toy", *corpora, f"--data={tmp_path}", f"--out={tmp_path / 'out'}", "--workers=1"]
    assert main(arguments) == 0
    lines = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    ended = {line["case"] for line in lines if line["part"] == "end"}
    assert {case.name for case in JOBS["electra"]} <= ended
    assert all(line["run"]["finished"] for line in lines if line["part"] == "run")
    assert sum(line["part"] == "masked" and line["token_loss"] > 0 for line in lines) == len(JOBS["electra"])
    before = (tmp_path / "out" / "results.jsonl").read_bytes()
    assert main(arguments) == 0
    assert (tmp_path / "out" / "results.jsonl").read_bytes() == before
