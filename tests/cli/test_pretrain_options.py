"""`maskwright pretrain`: options that name other models arrive under their Python names."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from maskwright.cli.main import main
from maskwright.core.files import write_json
from maskwright.recipes.catalog import resolve
from maskwright.training import pretrain as module


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--init", "runs/old"], "init", "runs/old"),
        (["--init", "runs/old", "--extend-vocabulary", "500"], "extend_vocabulary", "500"),
        (["--init", "runs/old", "--extend-vocabulary", "words.txt"], "extend_vocabulary", "words.txt"),
        (["--teacher", "google-bert/bert-base-uncased"], "teacher", "google-bert/bert-base-uncased"),
        (["--kernels", "reference"], "kernels", "reference"),
        ([], "kernels", "auto"),
        ([], "init", None),
        ([], "teacher", None),
        ([], "extend_vocabulary", None),
    ],
)
def test_options_arrive_by_name(words: list[str], name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Called(Exception):
        pass

    def pretrain(corpus: list[str], **asked: Any) -> None:
        assert asked[name] == value
        raise Called

    monkeypatch.setattr(module, "pretrain", pretrain)
    with pytest.raises(Called):
        main(["pretrain", "corpus.txt", "--out", "runs/new", *words])


def test_a_student_without_a_teacher_is_one_line_and_exit_code_2(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "corpus.txt").write_text("A text.")
    with pytest.raises(SystemExit) as caught:
        main(
            [
                "pretrain",
                str(tmp_path / "corpus.txt"),
                "--recipe",
                "distilbert/tiny",
                "--steps",
                "1",
                "--out",
                str(tmp_path / "run"),
            ]
        )
    assert caught.value.code == 2
    assert "--teacher DIR_OR_HUB_NAME" in capsys.readouterr().err.replace("\n", " ")


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
def test_a_finished_run_names_what_shows_best_what_it_has_learnt(
    recipe: str,
    overrides: tuple[str, ...],
    verb: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def pretrain(corpus: list[str], *, out: Path, **asked: Any) -> SimpleNamespace:
        write_json(out / "recipe.json", resolve(recipe, overrides).model_dump(mode="json"))
        return SimpleNamespace(folder=out, finished=True, steps=1, tokens=1)

    monkeypatch.setattr(module, "pretrain", pretrain)
    with pytest.raises(SystemExit):
        main(["pretrain", "corpus.txt", "--out", str(tmp_path)])
    assert f"try it: maskwright {verb} {tmp_path} " in capsys.readouterr().err.replace("\n", " ")
