"""Numbers in words."""

import pytest

from maskwright.core.text.amounts import (
    exact_or_short,
    listed,
    plain_float,
    pluralize,
    share,
    short_count,
    size_in_bytes,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (7, "7"), (999, "999"), (1000, "1k"), (24_000, "24k"), (999_999, "1.00M"), (109_482_240, "109M"),
     (1_003_520, "1.00M"), (1_500_000, "1.5M"), (1_504_000, "1.50M"),
     (4_385_920, "4.39M"), (999_999_999, "1.00B"), (1.5e12, "1.5T"), (3.2e15, "3.2e15"), (0.5, "0.5")],
)  # fmt: skip
def test_short_count(value, text):
    assert short_count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (512, "512"), (1_000_000, "1M"), (500_000, "500k"), (24_000, "24k"), (1500, "1.5k"),
     (30_522, "30,522"), (8192, "8,192"), (1_500_000, "1.5M"), (125_000, "125k"), (3072, "3,072")],
)  # fmt: skip
def test_exact_or_short_loses_nothing(value, text):
    assert exact_or_short(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-4, "1e-4"), (6e-4, "6e-4"), (1e-12, "1e-12"), (0.98, "0.98"), (0.02, "0.02"), (1.0, "1"), (0.0, "0"),
     (2.5e-5, "2.5e-5"), (1e6, "1e6"), (-1e-4, "-1e-4"), (0.001, "0.001")],
)  # fmt: skip
def test_plain_float(value, text):
    assert plain_float(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.15, "15 %"), (0.9, "90 %"), (0.125, "12.5 %"), (1, "100 %")])
def test_share(value, text):
    assert share(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1 << 20, "1 MiB"), (437_928_960, "418 MiB"), (3 << 40, "3 TiB")],
)
def test_size_in_bytes(value, text):
    assert size_in_bytes(value) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 texts"), (1, "1 text"), (2, "2 texts"), (1200, "1,200 texts")])
def test_counted_things_are_one_or_several(count, text):
    assert pluralize(count, "text") == text


@pytest.mark.parametrize(("count", "text"), [(0, ""), (2, "a, b"), (1300, "a, b and 1,298 more")])
def test_of_many_names_the_first_are_listed(count, text):
    assert listed("ab" + "c" * (count - 2) if count else "", 2) == text
