"""`maskwright pretrain`: options that name other models arrive under their Python names."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from maskwright.cli.main import main
from maskwright.core.storage.files import write_json
from maskwright.recipes.catalog import resolve
from maskwright.training import pretrain as module


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", {"init": None, "extend_vocabulary": None, "teacher": None, "kernels": "auto"}),
        ("--init runs/old --extend-vocabulary 500", {"init": "runs/old", "extend_vocabulary": "500"}),
        ("--init runs/old --extend-vocabulary words.txt", {"extend_vocabulary": "words.txt"}),
        ("--teacher google-bert/bert-base-uncased", {"teacher": "google-bert/bert-base-uncased"}),
        ("--kernels reference", {"kernels": "reference"}),
    ],
)
def test_options_arrive_by_name(words: str, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    class Called(Exception):
        pass

    def pretrain(corpus: list[str], **options: Any) -> None:
        assert expected.items() <= options.items()
        raise Called

    monkeypatch.setattr(module, "pretrain", pretrain)
    with pytest.raises(Called):
        main(["pretrain", "corpus.txt", "--out", "runs/new", *words.split()])


@pytest.mark.parametrize(
    ("recipe", "overrides", "verb"),
    [
        ("bert/tiny", (), "fill-mask"),
        ("roberta/tiny", (), "fill-mask"),
        ("distilbert/tiny", (), "fill-mask"),
        ("electra/tiny", (), "detect"),
        ("macbert/tiny", (), "embed"),  # It has the head, but never saw a mask.
        ("bert/tiny", ("replacement={mask: 0, random: 0.5, keep: 0.5}",), "embed"),
        ("bert/tiny", ("objectives=[nsp]", "replacement={mask: 0, random: 0, keep: 1}"), "embed"),
    ],
)
def test_a_finished_run_names_what_shows_best_what_it_has_learnt(recipe, overrides, verb, tmp_path, monkeypatch, run):
    def pretrain(corpus: list[str], *, out: str, **options: Any) -> SimpleNamespace:
        write_json(Path(out) / "recipe.json", resolve(recipe, overrides).model_dump(mode="json"))
        return SimpleNamespace(folder=Path(out), finished=True, steps=1, tokens=1)

    monkeypatch.setattr(module, "pretrain", pretrain)
    _, _, err = run("pretrain", "corpus.txt", "--out", tmp_path)
    assert f"try it: maskwright {verb} {tmp_path} " in err.replace("\n", " ")
