"""The playground page in a real browser, if Playwright and Chromium are installed."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.finetuning.tiny_tuned import LABELS
from tests.serving.servers import running

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]


@pytest.fixture(scope="module")
def port(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running(list(folders.values()), tmp_path_factory.mktemp("server") / "log") as (_, port):
        yield port


@pytest.fixture
def page(port: int) -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 390, "height": 844})
        problems: list[str] = []
        # Chromium reports refused requests there too; what else it reports is the page's fault.
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector("nav button")
        yield page
        assert not [each for each in problems if not each.startswith("Failed to load resource")]
        browser.close()


def run(page: Any) -> None:
    page.click("#run")
    page.wait_for_selector("#results article, #status.error")


def test_every_kind_of_model_shows_its_results(page: Any) -> None:
    shown = {
        "bert": ("tbody tr", 5),
        "electra": ("mark", 10),
        "classes": ("tbody tr", len(LABELS)),
        "tags": (".text", 1),
        "answers": ("mark.answer", 1),
        "choices": ("tbody tr", 2),
    }
    for name, (selector, least) in shown.items():
        page.select_option("#model", label=name)
        run(page)
        assert page.locator("#results article").count() == 1, page.inner_text("#status")
        assert page.locator(f"#results article {selector}").count() >= least, name
        if name == "electra":
            color = page.locator("mark").first.evaluate("element => getComputedStyle(element).backgroundColor")
            assert color not in ("rgba(0, 0, 0, 0)", "transparent")
        if name == "choices":
            options = page.locator("#field-options").input_value().split("\n")
            assert {row.inner_text().split("\t")[0] for row in page.locator("tbody tr").all()} == set(options)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "it fits a phone"


def test_two_models_stand_side_by_side_and_the_list_is_ranked(page: Any) -> None:
    page.select_option("#model", label="bert")
    page.focus("nav button[aria-selected=true]")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("nav button[aria-selected=true]") == "Similar sentences"
    page.fill("#field-text", "The cat sat on the mat.")
    page.fill("#field-list", "A dog ran to the tree.\n\nThe cat sat on the mat.\n")
    page.select_option("#other", label="electra")
    page.wait_for_selector("#results article >> nth=1")
    assert page.locator("#results h2").all_inner_texts() == ["bert", "electra"]
    for article in page.locator("#results article").all():
        rows = [row.inner_text().split("\t") for row in article.locator("tbody tr").all()]
        assert rows[0] == ["1.000", "The cat sat on the mat."]
        assert len(rows) == 2


def test_an_error_is_shown(page: Any) -> None:
    page.select_option("#model", label="bert")
    page.fill("#field-text", "no mask here")
    with page.expect_response(lambda response: response.status == 400):
        page.click("#run")
    page.wait_for_selector("#status.error")
    assert "mask" in page.inner_text("#status").lower()
