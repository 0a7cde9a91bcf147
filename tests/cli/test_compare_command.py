"""`maskwright compare` on the command line."""

import json
from pathlib import Path

from tests.cli.conftest import Run


def test_a_dry_run_prints_its_runs_as_json(run: Run, tmp_path: Path) -> None:
    corpus, out = tmp_path / "corpus.txt", tmp_path / "study"
    corpus.write_text("\n\n".join(f"The cat number {number} sat on the mat and slept." for number in range(40)))
    study = (corpus, "--recipes", "bert/tiny,albert/tiny", "--tokens", "1000", "--seeds", "1", "--workers", "1")
    code, printed, _ = run("compare", *study, "--out", out, "--dry-run", "--json")
    assert code == 0
    runs = json.loads(printed)
    assert [(each["label"], each["seed"], each["state"]) for each in runs] == [
        ("bert/tiny", 0, "missing"),
        ("albert/tiny", 0, "missing"),
    ]
    assert all(each["flops"] > 1e6 for each in runs)
