"""The jobs for a GPU: their recipes exist, and they run at toy size on a CPU."""

import json
from pathlib import Path

import pytest

from benchmarks.gpu import JOBS, Case, main
from maskwright.core.spec import override, parse_overrides
from maskwright.recipes.catalog import resolve
from tests.training.toy_runs import write_corpus

CASES = [case for cases in JOBS.values() for case in cases]


def test_cases_of_all_jobs_have_different_names() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", [case for case in CASES if case.recipe], ids=lambda case: case.name)
def test_recipes_of_jobs_are_valid(case: Case) -> None:
    override(resolve(case.recipe), parse_overrides(case.set))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with two small corpora, where the jobs look for them."""
    folder = tmp_path / "data"
    folder.mkdir(parents=True)
    for seed, name in enumerate(("novels.txt", "modern.txt")):
        write_corpus(folder / name, documents=200, seed=seed)
    return folder


@pytest.mark.slow
def test_a_job_runs_at_toy_size_and_continues(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "cache"))
    corpora = [f"--corpus={file}" for file in sorted(data.iterdir())]
    arguments = ["electra", "--toy", *corpora, f"--data={data}", f"--out={tmp_path / 'out'}", "--workers=1"]
    assert main(arguments) == 0
    lines = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    ended = {line["case"] for line in lines if line["part"] == "end"}
    assert {case.name for case in JOBS["electra"]} <= ended
    assert all(line["run"]["finished"] for line in lines if line["part"] == "run")
    assert sum(line["part"] == "masked" and line["token_loss"] > 0 for line in lines) == len(JOBS["electra"])
    before = (tmp_path / "out" / "results.jsonl").read_bytes()
    assert main(arguments) == 0
    assert (tmp_path / "out" / "results.jsonl").read_bytes() == before
