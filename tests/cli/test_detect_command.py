"""`maskwright detect`: marked text, JSON or a file; one-line errors. `fill-mask` of an ELECTRA run."""

import json
from pathlib import Path

import pytest

from maskwright.cli.main import main


def _run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit:
        main([str(argument) for argument in arguments])
    return int(exit.value.code or 0)


def test_detect_prints_the_marked_text(electra_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("detect", electra_folder, "the cat sat", "a dog", "--threshold", 0) == 0
    captured = capsys.readouterr()
    first, second = captured.out.splitlines()
    assert first.startswith("the{")
    assert first.count("%}") == 3
    assert second.count("%}") == 2
    assert "5 of 5 tokens look replaced (probability at least 0)" in captured.err


def test_detect_prints_json(electra_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("detect", electra_folder, "the cat sat", "--json") == 0
    (text,) = json.loads(capsys.readouterr().out)
    assert text["text"] == "the cat sat"
    assert [set(token) for token in text["tokens"]] == [
        {"token", "token_id", "start", "end", "probability", "replaced"}
    ] * 3


def test_detect_reads_and_writes_files(
    electra_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_text("a cat\nthe dog ran\n", encoding="utf-8")
    out = tmp_path / "out.jsonl"
    assert _run("detect", electra_folder, "--file", tmp_path / "in.txt", "--out", out) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "2 texts in" in captured.err
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [len(line["tokens"]) for line in lines] == [2, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "no text was given"), (["the cat", "--threshold", "2"], "the threshold is 2")],
)
def test_detect_ends_with_one_line_that_says_what_is_wrong(
    arguments: list[str], message: str, electra_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("detect", electra_folder, *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_detect_needs_a_detector(bert_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("detect", bert_folder, "the cat") == 2
    assert "no head for replaced tokens" in capsys.readouterr().err


def test_fill_mask_says_that_the_generator_fills(electra_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("fill-mask", electra_folder, "the [MASK] sat", "--json") == 0
    captured = capsys.readouterr()
    assert f"predicted by the generator in {electra_folder / 'generator'}" in captured.err
    assert len(json.loads(captured.out)[0]["masks"][0]) == 5
