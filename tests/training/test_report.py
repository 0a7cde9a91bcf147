"""The page of a run."""

import builtins
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from toy_runs import Listening, Train, train_toy, write_corpus

from maskwright.core.files import read_json
from maskwright.training import pretrain as module
from maskwright.training.interrupt import StopRequest
from maskwright.training.report import html, write_page

PAGE = "report.html"


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    monkeypatch.setattr(module, "write_page", write_page)
    write_corpus(tmp_path / "corpus.txt", documents=200)
    return partial(train_toy, tmp_path, steps=24)


def test_the_page_shows_curves_fills_cost_and_origin(train: Train) -> None:
    pytest.importorskip("matplotlib")
    listening = Listening()
    run = train(recipe="electra/tiny", reporter=listening)
    page = (run.folder / PAGE).read_text(encoding="utf-8")
    assert listening.on("report") == [str(run.folder / PAGE)]
    assert page.startswith("<!doctype html>")
    assert page.count("<svg") == 3
    assert not re.findall(r"(?:src|href)=\"(?!#)", page), "the page needs no other file"
    assert not set(re.findall(r"url\(#([^)]+)\)", page)) - set(re.findall(r' id="([^"]+)"', page))
    for shown in (f"{run.tokens:,}", "masked tokens (generator)", "replaced tokens", "training.warmup_steps", "corpus"):
        assert shown in page
    assert "interrupted" not in page
    samples = read_json(run.folder / "run.json")["samples"]
    masked = [part for parts in samples for part in parts if "token" in part]
    assert masked
    assert all(len(part["predictions"]) == 3 for part in masked)
    # Whatever is drawn is in the directory: the same page again, also for a run that lost it.
    (run.folder / PAGE).unlink()
    train(recipe="electra/tiny", reporter=listening)
    assert (run.folder / PAGE).read_text(encoding="utf-8") == page == html(run.folder)


def test_an_interrupted_run_has_a_page_that_says_so(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "__bool__", lambda _: True)
        run = train(reporter=Listening())
    assert "interrupted at 4 % of the budget" in (run.folder / PAGE).read_text(encoding="utf-8")
    train(reporter=Listening())
    assert "interrupted" not in (run.folder / PAGE).read_text(encoding="utf-8")


def test_without_the_extra_training_says_how_to_get_the_page(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] in ("jinja2", "matplotlib"):
            raise ModuleNotFoundError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    listening = Listening()
    run = train(recipe="roberta/tiny", reporter=listening)
    assert run.finished
    assert not (run.folder / PAGE).exists()
    (line,) = listening.on("report")
    assert "install the extra `report`" in line
