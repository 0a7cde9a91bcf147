"""Timing in turns, by a clock that the tests wind themselves."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.timing import Side, Spread, interleave, number, ratios, speeds


class Clock:
    """Seconds that pass only when a side says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[str] = []

    def __call__(self) -> float:
        return self.now

    def side(self, name: str, seconds: Callable[[int], float], own: float | None = None) -> Side:
        """A side whose n-th run takes some seconds."""
        runs = 0

        def run() -> float | None:
            nonlocal runs
            self.now += seconds(runs)
            runs += 1
            self.told.append(name)
            return own

        return Side(name, run)


def test_sides_take_turns_and_the_warm_up_is_not_counted() -> None:
    clock = Clock()
    sides = [clock.side("a", lambda run: 10.0 if run == 0 else 1.0 + run), clock.side("b", lambda run: 5.0)]
    seconds = interleave(sides, 3, warm_up=1, clock=clock, between=lambda: None)
    assert clock.told == ["a", "b", "b", "a"] * 2
    assert seconds == {"a": [2.0, 3.0, 4.0], "b": [5.0, 5.0, 5.0]}


def test_what_happens_between_runs_costs_nobody_anything() -> None:
    clock = Clock()
    waits = []

    def between() -> None:
        clock.now += 100.0
        waits.append(clock.now)

    seconds = interleave([clock.side("a", lambda _: 1.0)], 2, warm_up=0, clock=clock, between=between)
    assert seconds == {"a": [1.0, 1.0]}
    assert len(waits) == 2


def test_a_side_may_time_itself() -> None:
    clock = Clock()
    sides = [clock.side("whole", lambda _: 9.0, own=2.5), clock.side("plain", lambda _: 9.0)]
    assert interleave(sides, 1, clock=clock, between=lambda: None) == {"whole": [2.5], "plain": [9.0]}


def test_a_setting_holds_for_its_own_side_only() -> None:
    clock, setting, seen = Clock(), "usual", list[str]()

    @contextlib.contextmanager
    def special() -> Iterator[None]:
        nonlocal setting
        clock.now += 50.0  # setting it is not timed
        setting = "special"
        yield
        setting = "usual"

    def run() -> None:
        clock.now += 1.0
        seen.append(setting)

    seconds = interleave([Side("a", run, special), Side("b", run)], 2, warm_up=0, clock=clock, between=lambda: None)
    assert seen == ["special", "usual", "usual", "special"]
    assert seconds == {"a": [1.0, 1.0], "b": [1.0, 1.0]}


def test_two_sides_of_one_name_are_refused() -> None:
    clock = Clock()
    with pytest.raises(ValueError, match="same name"):
        interleave([clock.side("a", lambda _: 1.0)] * 2, 1)


def test_a_ratio_is_taken_round_by_round() -> None:
    """A machine that is three times as slow in one round is so for both sides."""
    ours, theirs = speeds([1.0, 3.0, 1.0], 100), speeds([2.0, 6.0, 2.0], 100)
    assert ratios(ours, theirs) == Spread(2.0, 2.0, 2.0, 3)


def test_spread_is_median_and_quartiles() -> None:
    assert Spread.of([5.0, 1.0, 2.0, 4.0, 3.0]) == Spread(3.0, 2.0, 4.0, 5)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0, 1)
    assert Spread.of([5.0, 1.0, 2.0, 4.0, 3.0]).told() == "3.00 (2.00-4.00)"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (14229.3, "14,200"),
        (0.9, "0.900"),
        (9.6, "9.60"),
        (62.03, "62.0"),
        (999.7, "1,000"),
        (0.04812, "0.0481"),
        (0, "0"),
    ],
)
def test_numbers_have_three_digits(value: float, written: str) -> None:
    assert number(value) == written


@given(st.floats(1e-9, 1e12))
def test_written_numbers_are_within_half_a_digit(value: float) -> None:
    assert abs(float(number(value).replace(",", "")) - value) <= 0.00501 * value
