"""Numbers in words."""

from maskwright.core.text.amounts import (
    exact_or_short,
    listed,
    plain_float,
    pluralize,
    share,
    short_count,
    size_in_bytes,
)


def test_short_count():
    for value, text in [
        (0, "0"), (7, "7"), (999, "999"), (1000, "1k"), (24_000, "24k"), (999_999, "1.00M"), (109_482_240, "109M"),
        (1_003_520, "1.00M"), (1_500_000, "1.5M"), (1_504_000, "1.50M"), (4_385_920, "4.39M"), (999_999_999, "1.00B"),
        (1.5e12, "1.5T"), (3.2e15, "3.2e15"), (0.5, "0.5"),
    ]:  # fmt: skip
        assert short_count(value) == text


def test_exact_or_short_loses_nothing():
    for value, text in [
        (0, "0"), (512, "512"), (1_000_000, "1M"), (500_000, "500k"), (24_000, "24k"), (1500, "1.5k"),
        (30_522, "30,522"), (8192, "8,192"), (1_500_000, "1.5M"), (125_000, "125k"), (3072, "3,072"),
    ]:  # fmt: skip
        assert exact_or_short(value) == text


def test_plain_float():
    for value, text in [
        (1e-4, "1e-4"), (6e-4, "6e-4"), (1e-12, "1e-12"), (0.98, "0.98"), (0.02, "0.02"), (1.0, "1"), (0.0, "0"),
        (2.5e-5, "2.5e-5"), (1e6, "1e6"), (-1e-4, "-1e-4"), (0.001, "0.001"),
    ]:  # fmt: skip
        assert plain_float(value) == text


def test_share():
    assert [share(value) for value in (0.15, 0.9, 0.125, 1)] == ["15 %", "90 %", "12.5 %", "100 %"]


def test_size_in_bytes():
    sizes = {0: "0 B", 1023: "1023 B", 1 << 20: "1 MiB", 437_928_960: "418 MiB", 3 << 40: "3 TiB"}
    assert {size: size_in_bytes(size) for size in sizes} == sizes


def test_counted_things_are_one_or_several():
    assert [pluralize(count, "text") for count in (0, 1, 2, 1200)] == ["0 texts", "1 text", "2 texts", "1,200 texts"]


def test_of_many_names_the_first_are_listed():
    assert [listed(names, 2) for names in ("", "ab", "ab" + "c" * 1298)] == ["", "a, b", "a, b and 1,298 more"]
