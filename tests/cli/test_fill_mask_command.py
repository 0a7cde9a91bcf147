"""`maskwright fill-mask`: texts from the command line or a file; a table, JSON or a file; one-line errors."""

import json
import shutil
from pathlib import Path

import pytest

from maskwright.cli.main import main
from maskwright.core.files import write_json
from maskwright.recipes.catalog import get


def _run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit:
        main([str(argument) for argument in arguments])
    return int(exit.value.code or 0)


def test_fill_mask_prints_a_table_for_each_mask(bert_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("fill-mask", bert_folder, "the [MASK] and <mask> sat", "我爱[MASK]", "--top-k", 3) == 0
    out = capsys.readouterr().out
    assert "the [MASK] and <mask> sat  (mask 2 of 2)" in out
    assert out.count("score") == 3
    assert out.count("%") == 9


def test_fill_mask_prints_json(roberta_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("fill-mask", roberta_folder, "the [MASK] sat", "-k", 2, "--json") == 0
    (text,) = json.loads(capsys.readouterr().out)
    assert text["text"] == "the [MASK] sat"
    assert [set(best) for best in text["masks"][0]] == [{"score", "token", "token_id", "sequence"}] * 2


def test_fill_mask_reads_and_writes_files(
    bert_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "in.txt").write_text("a [MASK]\nwe [MASK] the <mask>\n", encoding="utf-8")
    out = tmp_path / "out.jsonl"
    assert _run("fill-mask", bert_folder, "--file", "~/in.txt", "--out", "~/out.jsonl") == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "2 texts in" in captured.err
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [len(line["masks"]) for line in lines] == [1, 2]


@pytest.mark.parametrize(("name", "told"), [("macbert/tiny", True), ("bert/tiny", False)])
def test_fill_mask_says_where_masks_were_never_learnt(
    name: str, told: bool, bert_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "run"
    shutil.copytree(bert_folder, model)
    write_json(model / "recipe.json", get(name).model_dump(mode="json"))
    assert _run("fill-mask", model, "a [MASK]", "--json") == 0
    assert ("without [MASK]" in capsys.readouterr().err) == told


def test_fill_mask_does_not_mind_a_recipe_of_another_version(
    bert_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "run"
    shutil.copytree(bert_folder, model)
    write_json(model / "recipe.json", {"a field of": "next year"})
    assert _run("fill-mask", model, "a [MASK]", "--json") == 0
    assert "without [MASK]" not in capsys.readouterr().err


def test_fill_mask_says_that_a_text_was_cut(bert_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("fill-mask", bert_folder, "[MASK]" + " cat" * 60, "--json") == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("warning: 1 of 1 texts have more than 40 tokens")
    json.loads(captured.out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["the cat"], "the text has no mask: 'the cat'"),
        ([], "no text was given"),
        (["the [MASK]", "--top-k", "0"], "top_k is 0"),
        (["the [MASK]", "--device", "cdua"], "Did you mean 'cuda'?"),
        (["--file", "absent.txt"], "cannot read absent.txt"),
    ],
)
def test_fill_mask_ends_with_one_line_that_says_what_is_wrong(
    arguments: list[str], message: str, bert_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("fill-mask", bert_folder, *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_fill_mask_suggests_the_nearest_model(bert_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("fill-mask", bert_folder.parent / "tiny-brt", "a [MASK]") == 2
    assert "Did you mean" in capsys.readouterr().err
