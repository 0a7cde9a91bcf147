from pathlib import Path

import pytest

from maskwright.reporting.metrics import JsonLines, read_rows, worth_logging


def test_lines_after_the_checkpoint_are_dropped_on_reopening(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first = JsonLines(path, 0)
    for step in range(1, 6):
        first.write({"step": step, "loss": 1.0 / step})
    first.close()
    before = path.read_bytes()
    with open(path, "a") as file:
        file.write('{"step": 6, "lo')  # A kill cut this line short.
    JsonLines(path, 3).close()
    assert [row["step"] for row in read_rows(path)] == [1, 2, 3]
    again = JsonLines(path, 3)
    for step in (4, 5):
        again.write({"step": step, "loss": 1.0 / step})
    again.close()
    assert path.read_bytes() == before


@pytest.mark.parametrize("bad", [b'{"st', b"\xff", b"[]", b"{}", b'{"step": "2"}', b"[" * 100_000, b"1" * 5000])
def test_a_bad_line_is_left_out_with_a_warning_and_the_lines_after_it_kept(tmp_path: Path, bad: bytes) -> None:
    path, good = tmp_path / "metrics.jsonl", [b'{"step": %d}\n' % step for step in (1, 3, 4)]
    path.write_bytes(good[0] + bad + b"\n" + good[1] + good[2])
    with pytest.warns(UserWarning, match=r"line 2 of .*metrics\.jsonl cannot be read and is left out"):
        JsonLines(path, 3).close()
    assert path.read_bytes() == good[0] + good[1]


def test_every_step_is_logged_at_first_and_then_fewer() -> None:
    assert sum(map(worth_logging, range(1, 1001))) == 1000
    assert sum(map(worth_logging, range(1001, 10_001))) == 900
    assert sum(map(worth_logging, range(10_001, 20_001))) == 100


def test_an_absent_file_has_no_rows(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "none.jsonl") == []
