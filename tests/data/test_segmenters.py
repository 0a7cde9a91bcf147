import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from token_samples import CHINESE

from maskwright.core.errors import DataError, RecipeError
from maskwright.core.spec import validate
from maskwright.data.words import segmenters
from maskwright.data.words.annotator import check_words, words_fingerprint
from maskwright.data.words.segmenters import Segmenter, in_one_call, open_segmenter
from maskwright.data.words.spec import Words


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    segmenters._loaded.cache_clear()
    yield
    segmenters._loaded.cache_clear()


def two_by_two(run: str) -> list[str]:
    return [run[start : start + 2] for start in range(0, len(run), 2)]


class FakeLTP:
    def __init__(self, model: str) -> None:
        if model != "LTP/small":
            raise OSError(f"no model {model!r}")
        self.known: list[str] = []

    def add_words(self, words: list[str], freq: int) -> None:
        self.known += words

    def pipeline(self, runs: list[str], tasks: list[str]) -> Any:
        assert tasks == ["cws", "pos"]
        cut = [["changed"] if run == "臺灣" else two_by_two(run) for run in runs]
        return SimpleNamespace(cws=cut, pos=[["ns" if word == "北京" else "n" for word in words] for words in cut])


def install(monkeypatch: pytest.MonkeyPatch, name: str, content: dict[str, Any]) -> None:
    module = ModuleType(name)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)


def names(segmenter: Segmenter, *runs: str) -> list[str]:
    return [word for word, tag in segmenter.tag(runs) if segmenter.is_name(word, tag)]


def test_ltp_gives_words_and_names_and_characters_where_it_changed_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "ltp", {"LTP": FakeLTP})
    segmenter = open_segmenter("ltp")
    assert segmenter.cut(["北京大学", "臺灣"]) == [("北京", "ns"), ("大学", "n"), ("臺", ""), ("灣", "")]
    assert names(segmenter, "北京大学", "臺灣") == ["北京"]


def test_tagged_words_that_do_not_join_fall_back_to_characters_of_their_run_alone() -> None:
    def tag(text: str) -> list[tuple[str, str]]:
        return [(word.replace("臺灣", "台湾省"), "ns") for word in re.findall("..|\n|.", text)]

    assert in_one_call(tag)(["臺灣", "北京"]) == [("臺", ""), ("灣", ""), ("北京", "ns")]
    assert in_one_call(tag)(["北京", "学生"]) == [("北京", "ns"), ("学生", "ns")]


def test_rjieba_cuts_runs_separately_and_joins_back() -> None:
    segmenter = open_segmenter("rjieba")
    runs = ["使用语言模型", "来预测", "𠀀𠀁北京", *CHINESE]
    for words in (segmenter.cut(runs), segmenter.tag(runs)):
        assert "".join(word for word, _ in words) == "".join(runs)
    assert [word for word, _ in segmenter.cut(["语言", "模型"])] == ["语言", "模型"]
    assert names(segmenter, "李白在北京大学") == ["李白", "北京大学"]


def test_common_words_that_jieba_tags_as_names_are_none() -> None:
    segmenter = open_segmenter("rjieba")
    text = ["把东西写进日志和索引", "贡献者在子目录里解密", "谷歌的工程师在慕尼黑和中国"]
    tagged = [word for word, tag in segmenter.tag(text) if tag[:2] in ("nr", "ns", "nt", "nz")]
    assert {"东西", "日志", "索引", "贡献者", "解密"} <= set(tagged)
    assert names(segmenter, *text) == ["谷歌", "慕尼黑", "中国"]


def test_an_edited_dictionary_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "d.txt"
    path.write_text("语言模型 99999 nz\n", encoding="utf-8")
    words = Words(segmenter="rjieba", dictionary=str(path))
    first, key = open_segmenter("rjieba", path), words_fingerprint(words)
    assert open_segmenter("rjieba", path) is first
    assert first.cut(["使用语言模型"])[1] == ("语言模型", "")
    path.write_text("使用语言 99999 nz\n", encoding="utf-8")
    assert words_fingerprint(words) != key
    assert open_segmenter("rjieba", path).cut(["使用语言模型"])[0] == ("使用语言", "")


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("raise ValueError('numpy.dtype size changed\\nand more')", r"cannot be loaded \(ValueError: numpy.dtype size"),
        ("from sys import nothing_of_that_name", r"cannot be loaded \(ImportError: cannot import name"),
        ("import a_library_that_is_missing", "a_library_that_is_missing, which is not installed"),
    ],
)
def test_broken_library_is_told_before_any_work(
    broken: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ltp.py").write_text(broken + "\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match=rf"the segmenter 'ltp' needs the package.*{says}"):
        check_words(Words(segmenter="ltp"))


def test_model_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "ltp", {"LTP": FakeLTP})
    with pytest.raises(DataError, match=r"'ltp' cannot load its model 'other' \(OSError.*rjieba"):
        check_words(Words(segmenter="ltp", model="other"))
    with pytest.raises(DataError, match="has no model to choose"):
        check_words(Words(segmenter="rjieba", model="other"))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"phrases": ["segmentr"]}, "did you mean 'segmenter'"),
        ({"phrases": ["segmenter"]}, "segmenter is 'none'"),
        ({"entities": ["tags"]}, "segmenter is 'none'"),
        ({"dictionary": "d.txt"}, "segmenter is 'none'"),
        ({"model": "zh"}, "segmenter is 'none'"),
        ({"phrases": ["a.txt", "a.txt"]}, "twice"),
        ({"entities": ["collocations"]}, "not a source of the kind 'entity'"),
    ],
)
def test_words_that_make_no_sense_are_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        validate(Words, fields)


def test_fingerprint_is_of_content_and_versions_not_of_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(name: str, text: str) -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return words_fingerprint(Words(segmenter="rjieba", phrases=(str(tmp_path / name),)))

    first = of("a.txt", "New York\n")
    assert first == of("b.txt", "New York\n") != of("a.txt", "Los Angeles\n")
    monkeypatch.setattr(segmenters.metadata, "version", lambda name: "99")
    assert of("a.txt", "New York\n") != first
