"""`maskwright embed`: vectors to a file, as JSON, or a look at which texts are near each other."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import maskwright
from maskwright.cli.main import main


def _run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit:
        main([str(argument) for argument in arguments])
    return int(exit.value.code or 0)


def test_embed_writes_a_row_for_each_line(
    bert_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["the cat", "", *["a dog ran"] * 300]
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    out = tmp_path / "vectors.npy"
    assert _run("embed", bert_folder, "--file", tmp_path / "in.txt", "--out", out, "--normalize") == 0
    vectors = np.load(out)
    expected = maskwright.load(bert_folder).embed(texts, normalize=True)
    np.testing.assert_array_equal(vectors, expected)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "302 texts, 32 dimensions, written to" in captured.err
    assert "1 text of 302 blank" in captured.err


def test_embed_reads_the_text_column_of_a_csv(
    bert_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.csv").write_text("id,text,label\n1,the cat,good\n2,a dog ran,bad\n", encoding="utf-8")
    assert _run("embed", bert_folder, "--file", tmp_path / "in.csv", "--out", tmp_path / "v.npy") == 0
    np.testing.assert_array_equal(
        np.load(tmp_path / "v.npy"), maskwright.load(bert_folder).embed(["the cat", "a dog ran"])
    )
    assert "texts from column 'text' of" in capsys.readouterr().err
    assert _run("embed", bert_folder, "--file", tmp_path / "in.csv", "--column", "label", "--json") == 0
    assert json.loads(capsys.readouterr().out)["shape"] == [2, 32]


def test_embed_notes_models_without_sentence_training(
    bert_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("embed", bert_folder, "the cat", "the cats", "--json") == 0
    captured = capsys.readouterr()
    assert "not trained to compare texts" in captured.err
    assert json.loads(captured.out)["shape"] == [2, 32]
    shutil.copytree(bert_folder, tmp_path / "trained")
    (tmp_path / "trained" / "modules.json").write_text("[]")
    assert _run("embed", tmp_path / "trained", "the cat") == 0
    assert "not trained to compare texts" not in capsys.readouterr().err


def test_embed_prints_json_with_or_without_a_file(
    bert_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("embed", bert_folder, "the cat", "--pooling", "first", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["shape"], printed["pooling"], printed["normalized"]) == ([1, 32], "first", False)
    expected = maskwright.load(bert_folder).embed("the cat", pooling="first")
    np.testing.assert_allclose(printed["vectors"], expected, rtol=1e-6)
    assert _run("embed", bert_folder, "the cat", "--json", "--out", tmp_path / "v.npy") == 0
    assert set(json.loads(capsys.readouterr().out)) == {"shape", "pooling", "normalized", "out"}


def test_embed_writes_below_the_home_folder(bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert _run("embed", bert_folder, "the cat", "--out", "~/v.npy") == 0
    assert np.load(tmp_path / "v.npy").shape == (1, 32)


def test_embed_shows_near_texts(roberta_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("embed", roberta_folder, "the cat", "the cats", "我爱北京") == 0
    captured = capsys.readouterr()
    assert "nearest neighbor" in captured.out
    assert "3 texts, 32 dimensions" in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--out", "v.txt"], "cannot write vectors as 'v.txt'. Allowed: a name that ends in .npy"),
        (["a", "--pooling", "maen"], "Did you mean 'mean'?"),
        ([], "no text was given"),
    ],
)
def test_embed_ends_with_one_line_that_says_what_is_wrong(
    arguments: list[str], message: str, bert_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("embed", bert_folder, *arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_embed_names_the_line_that_is_not_utf_8(
    bert_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_bytes(b"fine\nna\xefve\n")
    assert _run("embed", bert_folder, "--file", tmp_path / "in.txt", "--out", tmp_path / "v.npy") == 2
    assert "in.txt, line 2: not UTF-8" in capsys.readouterr().err
    assert not (tmp_path / "v.npy").exists()


def test_embed_notices_an_unwritable_place_before_the_work(
    bert_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(maskwright.Model, "embed", lambda *_, **__: pytest.fail("the work was begun"))
    assert _run("embed", bert_folder, "a", "--out", tmp_path / "file" / "v.npy") == 2
    assert "cannot write" in capsys.readouterr().err
