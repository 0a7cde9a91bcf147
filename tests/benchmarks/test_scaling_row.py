"""The row on how cost grows: what flat memory and linear time mean."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.prose import write_made_text
from benchmarks.scaling import MEGABYTES, _corpus_checks, _write_beginning

MIB = 1 << 20


def corpora(
    *, main: Callable[[float], float], worker: Callable[[float], float], seconds: Callable[[float], float]
) -> list[dict[str, Any]]:
    """Make figures of corpora; memory in MiB and seconds as functions of MB of text."""
    return [
        {
            "megabytes": size + 0.003,  # Files end with a whole document.
            "peak": int(main(size) * MIB),
            "worker": int(worker(size) * MIB),
            "cleaning": seconds(size) / 3,
            "tokenizing": 2 * seconds(size) / 3,
        }
        for size in MEGABYTES
    ]


def flat(size: float) -> float:
    """Memory that grows until buffers are full."""
    return 100 + min(size, 32.0)


def linear(size: float) -> float:
    """Time with a start."""
    return 0.5 + 0.1 * size


def test_the_largest_is_compared_with_a_quarter_of_it() -> None:
    checks = _corpus_checks(corpora(main=flat, worker=flat, seconds=linear))
    assert [check.what for check in checks] == [
        "256 MB against 64 MB: memory",
        "256 MB against 64 MB: memory of a worker",
        "256 MB against 64 MB: time a byte",
    ]
    assert all(check.passed for check in checks)


@pytest.mark.parametrize("growth", [0.2, 1.0])
def test_memory_that_goes_on_growing_is_found(growth: float) -> None:
    def growing(size: float) -> float:
        return 120 + growth * size

    assert [each.passed for each in _corpus_checks(corpora(main=growing, worker=flat, seconds=linear))] == [
        False,
        True,
        True,
    ]
    assert [each.passed for each in _corpus_checks(corpora(main=flat, worker=growing, seconds=linear))] == [
        True,
        False,
        True,
    ]


def test_time_that_grows_faster_than_the_corpus_is_found() -> None:
    checks = _corpus_checks(corpora(main=flat, worker=flat, seconds=lambda size: 0.1 * size**1.3))
    assert [check.passed for check in checks] == [True, True, False]


def test_where_workers_are_not_seen_nothing_is_said_of_them() -> None:
    checks = _corpus_checks(corpora(main=flat, worker=lambda _: 0, seconds=linear))
    assert [check.what.rpartition(": ")[2] for check in checks] == ["memory", "time a byte"]


def test_a_shorter_text_is_the_longer_one_s_beginning(tmp_path: Path) -> None:
    longest, short, made = (tmp_path / name for name in ("longest.txt", "short.txt", "made.txt"))
    write_made_text(longest, 0.05, 3)
    write_made_text(made, 0.02, 3)
    _write_beginning(longest, short, 0.02)
    assert short.read_bytes() == made.read_bytes() != longest.read_bytes()
    _write_beginning(longest, short, 0.05)
    assert short.read_bytes() == longest.read_bytes()
