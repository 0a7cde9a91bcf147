import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from token_samples import CHINESE

from maskwright.core.errors import DataError, RecipeError
from maskwright.core.spec import validate
from maskwright.data.scripts import code_points, traditional_texts
from maskwright.data.words import segmenters
from maskwright.data.words.annotator import check_words, words_fingerprint
from maskwright.data.words.segmenters import Segmenter, describe_traditional, is_name, open_segmenter
from maskwright.data.words.spec import Words


def opened(dictionary: str | None = None) -> Segmenter:
    segmenter = open_segmenter(Words(segmenter="rjieba", dictionary=dictionary))
    assert segmenter is not None
    return segmenter


def names(segmenter: Segmenter, *runs: str) -> list[str]:
    return [word for word, tag in segmenter.tag(runs) if is_name(word, tag)]


def test_rjieba_cuts_runs_separately_and_joins_back() -> None:
    segmenter = opened()
    runs = ["使用语言模型", "来预测", "𠀀𠀁北京", *CHINESE]
    assert "".join(segmenter.cut(runs)) == "".join(runs)
    assert "".join(word for word, _ in segmenter.tag(runs)) == "".join(runs)
    assert segmenter.cut(["语言", "模型"]) == ["语言", "模型"]
    assert names(segmenter, "李白在北京大学") == ["李白", "北京大学"]


def test_common_words_that_jieba_tags_as_names_are_none() -> None:
    segmenter = opened()
    text = ["把东西写进日志和索引", "贡献者在子目录里解密", "谷歌的工程师在慕尼黑和中国"]
    tagged = [word for word, tag in segmenter.tag(text) if tag[:2] in ("nr", "ns", "nt", "nz")]
    assert {"东西", "日志", "索引", "贡献者", "解密"} <= set(tagged)
    assert names(segmenter, *text) == ["谷歌", "慕尼黑", "中国"]


def test_dictionary_changes_words_and_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "d.txt"
    path.write_text("语言模型 99999 nz\n大语言\n", encoding="utf-8")
    words = Words(segmenter="rjieba", dictionary=str(path))
    key = words_fingerprint(words)
    assert opened(str(path)).cut(["使用语言模型"])[1] == "语言模型"
    path.write_text("使用语言 99999 nz\n", encoding="utf-8")
    assert words_fingerprint(words) != key
    assert opened(str(path)).cut(["使用语言模型"])[0] == "使用语言"


TRADITIONAL = ["無邊落木蕭蕭下，不盡長江滾滾來。", "學生們對電腦很有興趣。"]
SIMPLIFIED = ["无边落木萧萧下，不尽长江滚滚来。", "学生们对电脑很有兴趣。"]


def test_texts_are_traditional_by_the_characters_that_only_one_script_has() -> None:
    texts = [*TRADITIONAL, *SIMPLIFIED, "人山人海。", "", "no Chinese", "他說这们个国家"]
    codes, lengths = code_points("".join(texts)), np.array(list(map(len, texts)))
    assert traditional_texts(codes, lengths).tolist() == [True, True, *[False] * 6]


def test_traditional_text_is_reported_with_what_becomes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    words = Words(segmenter="rjieba")
    assert describe_traditional(words, SIMPLIFIED) == describe_traditional(Words(), TRADITIONAL) == ""
    monkeypatch.setattr(segmenters, "find_spec", lambda _: None)
    note = describe_traditional(words, [*TRADITIONAL, *SIMPLIFIED, "English."])
    assert note.startswith("50% of the Chinese sentences are traditional")
    assert "maskwright[zh]" in note
    assert opened().simplify is None


def test_traditional_text_is_segmented_in_simplified_form(tmp_path: Path) -> None:
    pytest.importorskip("opencc")
    segmenter = opened()
    for traditional, simplified in zip(TRADITIONAL, SIMPLIFIED, strict=True):
        assert segmenter.simplify(traditional) == simplified
    assert "OpenCC" in describe_traditional(Words(segmenter="rjieba"), TRADITIONAL)
    path = tmp_path / "d.txt"
    path.write_text("滾滾來 99999 n\n", encoding="utf-8")
    assert "滚滚来" in opened(str(path)).cut(["滚滚来"])


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("raise ValueError('numpy.dtype size changed\\nand more')", r"cannot be loaded \(ValueError: numpy.dtype size"),
        ("from sys import nothing_of_that_name", r"cannot be loaded \(ImportError: cannot import name"),
        ("import a_library_that_is_missing", "a_library_that_is_missing, which is not installed"),
    ],
)
def test_broken_library_is_an_error_before_any_work(broken, says, tmp_path, monkeypatch):
    (tmp_path / "rjieba.py").write_text(broken + "\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "rjieba", raising=False)
    with pytest.raises(DataError, match=rf"the segmenter 'rjieba' needs the package.*{says}"):
        check_words(Words(segmenter="rjieba"))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"phrases": ["segmentr"]}, "did you mean 'segmenter'"),
        ({"phrases": ["segmenter"]}, "segmenter is 'none'"),
        ({"entities": ["tags"]}, "segmenter is 'none'"),
        ({"dictionary": "d.txt"}, "segmenter is 'none'"),
        ({"phrases": ["a.txt", "a.txt"]}, "twice"),
        ({"entities": ["collocations"]}, "not a source of the kind 'entity'"),
    ],
)
def test_words_that_make_no_sense_are_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        validate(Words, fields)


def test_fingerprint_is_of_content_and_versions_not_of_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(name: str, text: str) -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return words_fingerprint(Words(segmenter="rjieba", phrases=(str(tmp_path / name),)))

    first = of("a.txt", "New York\n")
    assert first == of("b.txt", "New York\n") != of("a.txt", "Los Angeles\n")
    monkeypatch.setattr(segmenters.metadata, "version", lambda name: "99")
    assert of("a.txt", "New York\n") != first
