"""The page of a run."""

import re
import warnings
from functools import partial
from pathlib import Path

import pytest
from toy_runs import Train, train_toy, write_corpus

from maskwright.core.errors import MaskwrightError
from maskwright.core.storage.files import read_json
from maskwright.training import pretrain as module
from maskwright.training.ranks.interrupt import StopRequest
from maskwright.training.runs.report import html, write_page
from recording import Recorder

PAGE = "report.html"


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    monkeypatch.setattr(module, "write_page", write_page)
    write_corpus(tmp_path / "corpus.txt", documents=200)
    return partial(train_toy, tmp_path, steps=24)


def test_the_page_shows_curves_fills_cost_and_origin(train: Train) -> None:
    recorder = Recorder()
    run = train(recipe="electra/tiny", reporter=recorder)
    page = (run.folder / PAGE).read_text(encoding="utf-8")
    assert recorder.on("report") == [str(run.folder / PAGE)]
    assert page.startswith("<!doctype html>")
    assert page.count("<svg") == 3
    assert not re.findall(r"(?:src|href)=\"(?!#)", page), "the page needs no other file"
    assert not set(re.findall(r"url\(#([^)]+)\)", page)) - set(re.findall(r' id="([^"]+)"', page))
    for shown in (f"{run.tokens:,}", "masked tokens (generator)", "replaced tokens", "training.warmup_steps", "corpus"):
        assert shown in page.replace("<wbr>", "")
    assert "interrupted" not in page
    samples = read_json(run.folder / "run.json")["samples"]
    masked = [part for parts in samples for part in parts if "token" in part]
    assert masked
    assert all(len(part["predictions"]) == 3 for part in masked)
    # Whatever is drawn is in the directory: the same page again, also for a run that lost it.
    (run.folder / PAGE).unlink()
    train(recipe="electra/tiny", reporter=recorder)
    assert (run.folder / PAGE).read_text(encoding="utf-8") == page == html(run.folder)


def test_an_interrupted_run_has_a_page_that_says_so(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "__bool__", lambda _: True)
        run = train(reporter=Recorder())
    assert "interrupted at 4 % of the budget" in (run.folder / PAGE).read_text(encoding="utf-8")
    train(reporter=Recorder())
    assert "interrupted" not in (run.folder / PAGE).read_text(encoding="utf-8")


@pytest.mark.parametrize(("recipe", "origin"), [("bert/tiny", "published"), ("electra/tiny", "recipe")])
def test_the_page_says_whose_settings_were_fitted_and_whose_text_is_held_out(
    train: Train, tmp_path: Path, recipe: str, origin: str
) -> None:
    page = (train(recipe=recipe, reporter=Recorder()).folder / PAGE).read_text(encoding="utf-8")
    assert f"<th>{origin}</th>" in page
    assert "Text that this run set aside" in page
    write_corpus(tmp_path / "held.txt", documents=20)
    run = train("other", recipe=recipe, reporter=Recorder(), held_out=[tmp_path / "held.txt"])
    page = (run.folder / PAGE).read_text(encoding="utf-8")
    assert "The text of --held-out; every" in page
    assert "set aside" not in page


def test_records_of_another_type_are_named_and_the_model_is_kept(train: Train) -> None:
    run = train(reporter=Recorder())
    line = '{"step": 1, "loss": "x", "tokens": {}, "mlm_loss": [], "mfu": "x", "seconds": null}\n'
    for name in ("run.json", "recipe.json", "data_card.json", "timing.jsonl", "metrics.jsonl"):
        path = run.folder / name
        content = path.read_bytes()
        bad = [line] if name.endswith("l") else ["[]", "3", "{}", '{"result": 3, "sources": [3], "request": []}', "{"]
        for each in bad:
            path.write_text(each)
            with pytest.raises(MaskwrightError, match=name), warnings.catch_warnings(action="ignore"):
                html(run.folder)
        path.write_bytes(content)
    (run.folder / "data_card.json").unlink()
    recorder = Recorder()
    write_page(run.folder, recorder)
    (message,) = recorder.on("report")
    assert "data_card.json" in message
