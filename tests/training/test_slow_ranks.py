"""Detection of slow ranks."""

import pytest

from maskwright.training.runs.monitor import SlowRanks


@pytest.mark.parametrize(
    ("seconds", "slow"),
    [
        ([0.1, 0.1, 0.1], []),
        ([0.1, 0.14, 0.1], []),
        ([0.1, 0.16, 0.1], [1]),
        ([0.1, 0.2], [1]),  # Of two, the faster one is the median.
        ([0.3, 0.1, 0.1, 0.4], [0, 3]),
        ([0.1], []),
    ],
)
def test_a_rank_over_one_and_a_half_times_the_median_is_named_once(seconds: list[float], slow: list[int]) -> None:
    ranks = SlowRanks()
    actual = [(step, *each) for step in range(1, 201) for each in ranks.find(seconds)]
    assert [(step, rank) for step, rank, *_ in actual] == [(50, rank) for rank in slow]
    for _, rank, rank_seconds, ratio in actual:
        assert rank_seconds == pytest.approx(seconds[rank])
        assert ratio == pytest.approx(seconds[rank] / sorted(seconds)[(len(seconds) - 1) // 2])


def test_a_rank_that_becomes_slow_is_named_after_the_next_50_steps() -> None:
    ranks = SlowRanks()
    actual = [step for step in range(1, 201) for _ in ranks.find([0.1, 0.1, 0.1 if step < 90 else 0.3])]
    assert actual == [150]
