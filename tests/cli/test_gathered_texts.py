"""Where the verbs that use a model have their texts from: lone surrogates are refused with their place."""

from pathlib import Path

import pytest

from maskwright.cli.main import main
from maskwright.cli.texts import gather
from maskwright.core.errors import MaskwrightError


def test_texts_of_the_command_line_come_first(tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("two\n\nthree 🙂\n", encoding="utf-8")
    assert gather(["one"], file) == ["one", "two", "", "three 🙂"]


def test_surrogates_are_refused_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(MaskwrightError, match="input 2: lone surrogate at position 4"):
        gather(["one", "sch\udcf6n"], None)
    file = tmp_path / "texts.jsonl"
    file.write_text('"one"\n\n{"text": "a \\ud83d"}\n', encoding="utf-8")
    with pytest.raises(MaskwrightError, match=r"texts\.jsonl, line 3: lone surrogate at position 3"):
        gather(["one"], file)


@pytest.mark.parametrize("verb", ["fill-mask", "embed", "detect"])
def test_every_verb_that_takes_texts_refuses_them(
    verb: str, bert_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        main([verb, str(bert_folder), "sch\udcf6n [MASK]"])
    assert exit.value.code == 2
    assert "input 1: lone surrogate at position 4" in " ".join(capsys.readouterr().err.split())
