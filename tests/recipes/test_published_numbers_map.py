"""Check that tests, commands, numbers and deviations named in the documentation exist in the code."""

import re
from collections import Counter

import pytest

from docs_pages import ROOT, commands, page
from maskwright.cli.main import SUBCOMMANDS
from maskwright.cli.training.pretrain import command as pretrain_command
from maskwright.recipes import catalog

SOURCES = ROOT / "src" / "maskwright"
PAGES = ("published_numbers.md", "worked_examples.md", "systems.md")


def cited(text: str) -> list[tuple[str, str]]:
    return re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)


@pytest.mark.parametrize("name", PAGES[:2])
def test_every_named_test_exists(name: str) -> None:
    actual = cited(page(name))
    assert len(actual) > 15
    for file, test in actual:
        assert re.search(rf"^def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), f"{file}::{test}"


def test_every_named_file_exists() -> None:
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for file in pages:
        for path in re.findall(r"`((?:[a-z_.-]+/)+[a-z_.-]+\.py)`", file.read_text(encoding="utf-8")):
            assert any((root / path).is_file() for root in (ROOT, SOURCES)), f"{file.name}: {path}"
        for path in re.findall(r"\]\(([\w/.-]+\.(?:md|svg))[#)]", file.read_text(encoding="utf-8")):
            assert (file.parent / path).is_file(), f"{file.name}: {path}"


def test_each_of_the_45_numbers_has_a_test_or_a_reason() -> None:
    rows = re.findall(r"^\| (\d+) \|(.*)\|(.*)\|$", page("published_numbers.md"), re.MULTILINE)
    assert sorted(int(number) for number, _, _ in rows) == list(range(1, 46))
    without = {int(number) for number, _, test in rows if not cited(test)}
    assert without == {37, 40}
    assert all(test.strip().startswith("no test: ") for number, _, test in rows if int(number) in without)


@pytest.mark.parametrize("name", PAGES[1:])
def test_every_command_names_a_valid_recipe_and_settings(name: str) -> None:
    actual = commands(page(name))
    assert len(actual) >= 8
    for command in actual:
        assert command.verb in SUBCOMMANDS
        if command.verb not in ("pretrain", "show"):
            continue
        if command.verb == "show" or "--recipe" in command.words:
            catalog.resolve(command.recipe, command.settings)
        else:
            assert "--init" in command.words
            assert not command.settings
        if command.verb == "pretrain":
            options = {word.removeprefix("--").replace("-", "_") for word in command.words if word.startswith("--")}
            assert options <= set(pretrain_command.__annotations__)


def test_every_system_has_a_command() -> None:
    documented = {
        command.recipe.split("/")[0] for command in commands(page("systems.md")) if "--recipe" in command.words
    }
    assert documented == {name.split("/")[0] for name in catalog.names()} - {"distilroberta"}


def test_every_deviation_is_documented() -> None:
    marked = Counter[str]()
    for file in SOURCES.rglob("*.py"):
        marked[str(file.relative_to(SOURCES))] += file.read_text(encoding="utf-8").count("DEVIATION:")
    documented = Counter(re.findall(r"^- .*\(`([\w/]+\.py)`\)\.$", page("systems.md"), re.MULTILINE))
    assert (documented - marked, marked - documented) == (Counter(), Counter())
