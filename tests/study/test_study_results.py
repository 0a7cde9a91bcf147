from typing import Any

import pytest

from maskwright.study.probes import _seconds
from maskwright.study.report import budget_text, sentences, shown_mean, shown_verdict
from maskwright.study.results import Metric, is_at_chance, is_on_plateau
from maskwright.study.statistics import BETTER, NO_DIFFERENCE, upper_limit

METRIC = {"title": "masked words, accuracy", "unit": "share", "is_main": True, "at_chance": False}
LEARNED = {label: {"loss_over_unigram": [0.8]} for label in ("a", "b")}


def _row(verdict: str) -> dict[str, Any]:
    return {"verdict": verdict, "difference": {"seeds": 2, "low": -0.042, "high": 0.062}}


def test_where_no_difference_is_shown_the_smallest_that_could_be_is_named() -> None:
    report = {"recipes": LEARNED, "baseline": "a", "metrics": {"x": {**METRIC, "rows": {"b": _row(NO_DIFFERENCE)}}}}
    assert sentences(report) == ["b against a: no difference shown in 1 metric."]
    assert shown_verdict(_row(NO_DIFFERENCE), "share") == "no difference shown (only above 5.2 points)"
    assert shown_verdict(_row(BETTER), "share") == BETTER
    adjusted = {"seeds": 3, "low": 0.016, "high": 0.074, "p": 0.021, "p_holm": 0.107}
    row = {"verdict": NO_DIFFERENCE, "difference": adjusted}
    assert shown_verdict(row, "share") == "no difference shown (p 0.021, adjusted 0.107)"


def test_a_recipe_is_on_the_plateau_unless_its_seeds_show_otherwise() -> None:
    assert is_on_plateau([0.98])
    assert not is_on_plateau([0.96])
    assert not is_on_plateau([0.90, 0.91, 0.92])
    assert is_on_plateau([0.90, 0.99]), "two seeds that far apart show nothing"
    assert is_on_plateau([float("nan"), 0.9])
    assert not is_on_plateau([]), "no held-out text"
    assert upper_limit([0.90, 0.91, 0.92]) == pytest.approx(0.91 + 2.920 * 0.01 / 3**0.5, abs=1e-4)


def test_metrics_at_chance_are_named_in_one_line() -> None:
    metric = {**METRIC, "title": "sentence order, accuracy", "at_chance": True, "rows": {"b": _row(NO_DIFFERENCE)}}
    report = {"recipes": LEARNED, "baseline": "a", "metrics": {"sentence_order": metric}}
    assert sentences(report)[-1] == "At chance for all recipes: sentence order, accuracy."


def test_the_budget_names_what_was_spent_equally() -> None:
    spent = {"spent": {"0": {"flops": 1e9, "tokens": 1000}, "1": {"flops": 1e9, "tokens": 1001}}}
    report = {"budget": {"unit": "tokens", "amount": 1000.0}, "recipes": {"a": spent}}
    assert "equal tokens within 0.1%" in budget_text(report)
    report["budget"] = {"unit": "flops", "amount": 1e9}
    assert "equal FLOPs within 0.0%" in budget_text(report)


def test_a_deviation_that_is_only_rounding_is_not_shown() -> None:
    assert shown_mean({"mean": 3.24e6, "sd": 5.7e-10}, "count") == shown_mean({"mean": 3.24e6, "sd": None}, "count")
    assert shown_mean({"mean": 0.5, "sd": 0.01}, "share") == "50.0 ± 1.0"


def test_a_call_is_timed_often_but_for_a_limited_time() -> None:
    calls: list[int] = []
    _seconds(lambda: calls.append(0))
    assert len(calls) == 51
    _seconds(lambda: calls.append(0), limit=0.0)
    assert len(calls) == 53


def test_a_metric_is_at_chance_unless_its_interval_is_on_the_better_side() -> None:
    row = {"chance": 0.5, "low": 0.45, "high": 0.55}
    for higher_is_better, better, worse in ((True, 0.3, 0.7), (False, 0.7, 0.3)):
        metric = Metric("", higher_is_better=higher_is_better)
        chances = [is_at_chance({**row, "chance": chance}, metric) for chance in (better, 0.5, worse, None)]
        assert chances == [False, True, True, False]
