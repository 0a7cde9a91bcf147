"""README's first commands need the package's dependencies only, and no extra."""

import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from docs_pages import ROOT

_RUN = """
import sys
from importlib.machinery import PathFinder
class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in {absent!r} else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
from maskwright.cli.main import main
for words in {commands!r}:
    try:
        main(words)
    except SystemExit as stop:
        assert not stop.code, (words, stop.code)
"""


def _add(requirements: Iterable[str], chosen: set[str]) -> None:
    """Add the names of required distributions, and of all that they require without extras."""
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        if name not in chosen and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            chosen.add(name)
            try:
                _add(requires(name) or (), chosen)
            except PackageNotFoundError:
                continue


@pytest.mark.slow
def test_the_first_commands_need_no_extra(tmp_path: Path) -> None:
    chosen = {"maskwright"}
    _add(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"], chosen)
    absent = {
        module
        for module, distributions in packages_distributions().items()
        if chosen.isdisjoint(map(canonicalize_name, distributions))
    }
    assert {"transformers", "tensorboard", "pyarrow", "rjieba", "fastapi"} <= absent
    run, tuned, reviews = tmp_path / "run", tmp_path / "tuned", tmp_path / "reviews.csv"
    rows = [f"film {number} is {word},{label}" for label, word in enumerate(("bad", "good")) for number in range(20)]
    reviews.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    commands = [
        ["pretrain", ROOT / "docs" / "*.md", "--recipe", "bert/tiny", "--steps", "3", "--out", run],
        ["fill-mask", run, "The tests run on a [MASK]."],
        ["embed", run, "A text.", "--out", tmp_path / "vectors.npy"],
        ["finetune", run, "--task", "classification", "--train", reviews, "--set", "epochs=1", "--out", tuned],
        ["predict", tuned, "A good film."],
        ["evaluate", tuned, "--file", reviews],
        ["recipes"],
        ["recipes", "diff", "bert/base", "roberta/base"],
        ["show", "bert/mini", "--text", "A short text."],
        ["doctor", run],
    ]
    script = _RUN.format(absent=absent, commands=[list(map(str, words)) for words in commands])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert (run / "report.html").is_file()
    assert not (run / "tensorboard").exists()
