"""`maskwright verify-resume`: a whole one, and what is said where runs differ."""

import json

import pytest

from maskwright.cli.main import main
from maskwright.training import verify_resume as module
from maskwright.training.verify_resume import Verdict


@pytest.mark.slow
def test_a_killed_run_is_found_equal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["verify-resume", "bert/tiny", "--kills", "1", "--json"])
    captured = capsys.readouterr()
    assert exit.value.code == 0, captured.err
    verdict = json.loads(captured.out)
    assert verdict["equal"]
    assert verdict["metrics_equal"]
    assert verdict["weights_equal"]
    assert (verdict["recipe"], verdict["steps"], verdict["first_difference"]) == ("bert/tiny", 60, "")
    (killed_at,) = verdict["killed_at"]
    assert 2 <= killed_at < 60
    assert verdict["epochs"] > 1  # The end of an epoch was crossed.


@pytest.mark.parametrize(
    ("metrics", "weights", "said"), [(False, True, "DIFFER: loss 1 / loss 2"), (True, False, "DIFFER")]
)
def test_runs_that_differ_are_told_and_end_with_1(
    metrics: bool, weights: bool, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def verify_resume(recipe: str, *, kills: int, seed: int, set: tuple[str, ...]) -> Verdict:
        assert (recipe, kills, seed, tuple(set)) == ("bert/tiny", 2, 3, ("masking.rate=0.3",))
        return Verdict(
            recipe=recipe,
            steps=60,
            epochs=2.5,
            killed_at=(7, 31),
            metrics_equal=metrics,
            weights_equal=weights,
            first_difference="" if metrics else "loss 1 / loss 2",
        )

    monkeypatch.setattr(module, "verify_resume", verify_resume)
    with pytest.raises(SystemExit) as exit:
        main(["verify-resume", "bert/tiny", "--seed", "3", "--set", "masking.rate=0.3"])
    out = capsys.readouterr().out
    assert exit.value.code == 1
    assert said in out
    assert "7, 31" in out
    assert out.count("DIFFER") == 1
    assert out.count("equal, byte for byte") == 1
