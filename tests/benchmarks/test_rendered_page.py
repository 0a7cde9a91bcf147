"""Results are kept, read and written between the markers of a page; the rest of the page is left alone."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks.catalog import ROWS, load
from benchmarks.render import render
from benchmarks.report import Check, Curve, Report, Table, keep, read
from maskwright.core.errors import MaskwrightError

REPORT = Report(
    tables=(Table(title="a title", columns=("model", "tokens/s"), rows=(("tiny | x", "1,000"), ("", "2,000"))),),
    measurements=({"seconds": [1.0, 2.0]},),
    checks=(Check("tiny: loss", "1e-07", "2e-06", True),),
    notes=("A note.",),
)
MARKED = """# Page

before
<!-- benchmark: natural -->
WHAT STOOD HERE
<!-- end of benchmark -->
between
<!-- benchmark: masks -->
nothing yet
<!-- end of benchmark -->
after
"""


def facts(**changes: Any) -> dict[str, Any]:
    machine = {
        "processor": "A processor",
        "threads": 2,
        "instructions": ["AVX2", "AVX512"],
        "allocator": "glibc",
        "allocator_settings": {},
        "fp32_library": "onednn",
    }
    found = {
        "title": "A row",
        "measured": datetime(2030, 1, 2, tzinfo=UTC).isoformat(),
        "quick": False,
        "quiet": True,
        "busy_cores": 0.0,
        "machine": machine,
        "versions": {"torch": "9.9", "accelerate": None},
    }
    return {**found, **changes}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(MARKED)
    return path


def test_results_come_back_as_they_were_kept(tmp_path: Path) -> None:
    keep(REPORT, tmp_path, "natural", facts())
    kept = read(tmp_path, "natural")
    assert kept is not None
    assert kept["tables"][0]["rows"] == [["tiny | x", "1,000"], ["", "2,000"]]
    assert kept["measurements"] == [{"seconds": [1.0, 2.0]}]
    assert kept["versions"]["torch"] == "9.9"
    assert read(tmp_path, "masks") is None


def test_tables_stand_between_their_markers_and_nothing_else_changes(tmp_path: Path, page: Path) -> None:
    keep(REPORT, tmp_path, "natural", facts())
    assert render(tmp_path, page) == ["natural"]
    text = page.read_text()
    assert text.startswith("# Page\n\nbefore\n<!-- benchmark: natural -->\n")
    assert text.endswith("between\n<!-- benchmark: masks -->\nnothing yet\n<!-- end of benchmark -->\nafter\n")
    assert "WHAT STOOD HERE" not in text
    assert "a title:\n\n| model | tokens/s |\n|---|---:|\n| tiny \\| x | 1,000 |" in text
    assert "All checks hold (1)." in text
    assert "A note." in text
    assert "A processor (AVX512); 2 threads, our fp32 products through oneDNN; glibc; torch 9.9; 2030-01-02." in text


def test_rendering_again_changes_nothing(tmp_path: Path, page: Path) -> None:
    keep(REPORT, tmp_path, "natural", facts())
    render(tmp_path, page)
    first = page.read_text()
    render(tmp_path, page)
    assert page.read_text() == first


def test_failed_checks_and_noise_are_said_aloud(tmp_path: Path, page: Path) -> None:
    failed = Report(tables=(), checks=(Check("tiny: loss", "1e-02", "2e-06", False),))
    assert not failed.sound
    keep(failed, tmp_path, "natural", facts(quiet=False, busy_cores=1.7))
    render(tmp_path, page)
    text = page.read_text()
    assert "**Checks that failed:**\n\n- tiny: loss: 1e-02, allowed 2e-06" in text
    assert "NOT QUIET (1.7 cores" in text


def test_plots_are_drawn_beside_the_page_the_same_each_time(tmp_path: Path, page: Path) -> None:
    pytest.importorskip("matplotlib")
    curve = Curve(name="growth", title="How it grows", x="length", y="speed", series={"us": ((1, 2), (2, 3))})
    keep(Report(tables=(), curves=(curve,)), tmp_path, "natural", facts())
    render(tmp_path, page)
    assert "![How it grows](plots/growth.svg)" in page.read_text()
    drawn = (tmp_path / "plots" / "growth.svg").read_bytes()
    render(tmp_path, page)
    assert (tmp_path / "plots" / "growth.svg").read_bytes() == drawn


def test_pages_with_wrong_markers_are_refused(tmp_path: Path, page: Path) -> None:
    page.write_text(MARKED.replace("benchmark: masks", "benchmark: mask"))
    with pytest.raises(MaskwrightError, match="Did you mean 'masks'"):
        render(tmp_path, page)
    page.write_text(MARKED.replace("<!-- end of benchmark -->\nafter", "after"))
    with pytest.raises(MaskwrightError, match="pairs"):
        render(tmp_path, page)


def test_tiny_settings_never_reach_the_projects_own_page(
    tmp_path: Path, page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.render.PAGE", page)
    before = page.read_text()
    keep(REPORT, tmp_path, "masks", facts(quick=True))
    with pytest.raises(MaskwrightError, match="tiny settings"):
        render(tmp_path, page)
    assert page.read_text() == before


@pytest.mark.parametrize("name", sorted(ROWS))
def test_every_row_can_be_loaded(name: str) -> None:
    assert callable(load(name))


# --- the command


def test_rows_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ROWS)


def test_misspelt_rows_are_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["naturel"]) == 2
    assert "Did you mean 'natural'?" in capsys.readouterr().err


def test_a_row_is_shown_kept_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []
    sound = [True]

    def row(settings: Any) -> Report:
        asked.append(settings)
        return Report(tables=REPORT.tables, checks=(Check("x: loss", "0", "0", sound[0]),))

    monkeypatch.setattr(command, "load", lambda name: row)
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("benchmarks.machine.facts", lambda *_: facts(quick=True))
    # It would hold for this whole process, and all other tests.
    monkeypatch.setattr("maskwright.training.allocator.keep_freed_memory", lambda: True)
    words = ["masks", "--quick", "--results", str(tmp_path), "--sizes", "tiny,base", "--rounds", "3"]
    assert command.main(words) == 0
    assert (asked[0].sizes, asked[0].rounds, asked[0].quick) == (("tiny", "base"), 3, True)
    assert asked[0].keeps_memory
    assert not asked[0].scratch.exists()  # it is cleared away
    assert "1,000" in capsys.readouterr().out
    assert read(tmp_path, "masks") is not None
    sound[0] = False
    assert command.main(words) == 1


def test_figures_of_tiny_settings_lie_apart() -> None:
    options = command._parser().parse_args(["--quick"])
    assert command._results(options) == command.RESULTS / "quick"
    assert command._results(command._parser().parse_args([])) == command.RESULTS
