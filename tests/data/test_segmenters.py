import re
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from token_samples import CHINESE

from maskwright.core.errors import DataError, RecipeError
from maskwright.core.spec import validate
from maskwright.data.words import segmenters
from maskwright.data.words.annotator import check_words, words_fingerprint
from maskwright.data.words.segmenters import Jieba, open_segmenter
from maskwright.data.words.spec import Words


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    segmenters._loaded.cache_clear()
    yield
    segmenters._loaded.cache_clear()


def two_by_two(run: str) -> list[str]:
    return [run[start : start + 2] for start in range(0, len(run), 2)]


def tags_of(words: Sequence[str], name: str) -> list[str]:
    return [name if word == "北京" else "n" for word in words]


class FakeLTP:
    def __init__(self, model: str) -> None:
        assert model == "LTP/small"
        self.known: list[str] = []

    def add_words(self, words: list[str], freq: int) -> None:
        self.known += words

    def pipeline(self, runs: list[str], tasks: list[str]) -> Any:
        assert tasks == ["cws", "pos"]
        cut = [two_by_two(run) for run in runs]
        return SimpleNamespace(cws=cut, pos=[tags_of(words, "ns") for words in cut])


def fake_hanlp() -> dict[str, Any]:
    def load(name: str) -> Any:
        if name == "tok":
            return lambda runs: [two_by_two(run) for run in runs]
        assert name == "pos"
        return lambda cut: [tags_of(words, "ns") for words in cut]

    names = SimpleNamespace(
        tok=SimpleNamespace(COARSE_ELECTRA_SMALL_ZH="tok"), pos=SimpleNamespace(PKU_POS_ELECTRA_SMALL="pos")
    )
    return {"load": load, "pretrained": names}


def fake_spacy() -> dict[str, Any]:
    def token(word: str) -> Any:
        return SimpleNamespace(text=word, pos_="PROPN" if word == "北京" else "NOUN")

    def load(name: str) -> Any:
        if name != "zh_core_web_sm":
            raise OSError(f"[E050] Can't find model {name!r}")
        return SimpleNamespace(pipe=lambda runs: ([token(word) for word in two_by_two(run)] for run in runs))

    return {"load": load}


def fake_stanza() -> dict[str, Any]:
    def pipeline(lang: str, processors: str, verbose: bool) -> Any:
        assert (lang, processors, verbose) == ("zh", "tokenize,pos", False)
        return lambda run: SimpleNamespace(
            sentences=[
                SimpleNamespace(
                    words=[
                        SimpleNamespace(text=word, upos="PROPN" if word == "北京" else None) for word in two_by_two(run)
                    ]
                )
            ]
        )

    return {"Pipeline": pipeline}


def install(monkeypatch: pytest.MonkeyPatch, name: str, content: dict[str, Any]) -> None:
    module = ModuleType(name)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)


FAKES = {"ltp": {"LTP": FakeLTP}, "hanlp": fake_hanlp(), "spacy": fake_spacy(), "stanza": fake_stanza()}


@pytest.mark.parametrize("name", FAKES)
def test_model_segmenters_give_words_and_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, name, FAKES[name])
    segmenter = open_segmenter(name)
    words, tags = segmenter.tag(["北京大学", "学生们"])
    assert words == segmenter.cut(["北京大学", "学生们"]) == ["北京", "大学", "学生", "们"]
    assert [tag.startswith(segmenter.entity_tags) for tag in tags] == [True, False, False, False]


def test_words_that_do_not_join_to_the_run_fall_back_to_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> Any:
        def cut(run: str) -> list[Any]:
            return (
                [SimpleNamespace(text="changed", pos_="X")] if run == "臺灣" else [SimpleNamespace(text=run, pos_="X")]
            )

        return SimpleNamespace(pipe=lambda runs: [cut(run) for run in runs])

    install(monkeypatch, "spacy", {"load": load})
    words, tags = open_segmenter("spacy").tag(["臺灣", "模型"])
    assert (words, tags) == (["臺", "灣", "模型"], ["", "", "X"])


def test_jieba_is_called_as_its_interface_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known: list[tuple[Any, ...]] = []

    class Tokenizer:
        def add_word(self, *entry: Any) -> None:
            known.append(entry)

        def lcut(self, text: str) -> list[str]:
            return [piece for run in text.split("\n") for piece in (*two_by_two(run), "\n")][:-1]

    class POSTokenizer:
        def __init__(self, tokenizer: Tokenizer) -> None:
            self.tokenizer = tokenizer

        def cut(self, text: str) -> list[Any]:
            return [SimpleNamespace(word=word, flag="ns") for word in self.tokenizer.lcut(text)]

    install(monkeypatch, "jieba", {"Tokenizer": Tokenizer, "setLogLevel": lambda level: None})
    install(monkeypatch, "jieba.posseg", {"POSTokenizer": POSTokenizer})
    (tmp_path / "d.txt").write_text("大模型 9 n\n", encoding="utf-8")
    segmenter = open_segmenter("jieba", tmp_path / "d.txt")
    assert segmenter.cut(["北京大", "学"]) == ["北京", "大", "学"]
    assert segmenter.tag(["北京"]).tags == ["ns"]
    assert known == [("大模型", 9, "n")]


def test_tagged_words_that_do_not_join_fall_back_to_characters_of_their_run_alone() -> None:
    def tag(text: str) -> list[tuple[str, str]]:
        return [(word.replace("臺灣", "台湾省"), "ns") for word in re.findall("..|\n|.", text)]

    segmenter = Jieba(lambda text: [word for word, _ in tag(text)], tag)
    assert segmenter.tag(["臺灣", "北京"]) == (["臺", "灣", "北京"], ["", "", "ns"])
    assert segmenter.tag(["北京", "学生"]) == (["北京", "学生"], ["ns", "ns"])


def test_rjieba_cuts_runs_apart_and_joins_back() -> None:
    segmenter = open_segmenter("rjieba")
    runs = ["使用语言模型", "来预测", "𠀀𠀁北京", *CHINESE]
    assert "".join(segmenter.cut(runs)) == "".join(segmenter.tag(runs).words) == "".join(runs)
    assert segmenter.cut(["语言", "模型"]) == ["语言", "模型"]
    words, tags = segmenter.tag(["李白在北京大学"])
    named = [word for word, tag in zip(words, tags, strict=True) if tag.startswith(segmenter.entity_tags)]
    assert named == ["李白", "北京大学"]


def test_dictionary_teaches_one_segmenter_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_text("语言模型 99999 nz\n", encoding="utf-8")
    taught, plain = open_segmenter("rjieba", tmp_path / "d.txt"), open_segmenter("rjieba")
    assert taught.cut(["使用语言模型"]) == ["使用", "语言模型"]
    assert taught.tag(["使用语言模型"]).tags[1] == "nz"
    assert plain.cut(["使用语言模型"]) == ["使用", "语言", "模型"]


def test_an_edited_dictionary_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "d.txt"
    path.write_text("语言模型 99999 nz\n", encoding="utf-8")
    words = Words(segmenter="rjieba", dictionary=str(path))
    first, key = open_segmenter("rjieba", path), words_fingerprint(words)
    assert open_segmenter("rjieba", path) is first
    assert first.cut(["使用语言模型"]) == ["使用", "语言模型"]
    path.write_text("使用语言 99999 nz\n", encoding="utf-8")
    assert words_fingerprint(words) != key
    assert open_segmenter("rjieba", path).cut(["使用语言模型"]) == ["使用语言", "模型"]


@pytest.mark.parametrize(
    ("name", "remedy"), [("rjieba", r"pip install 'maskwright\[zh\]'"), ("ltp", "pip install ltp")]
)
def test_missing_library_is_named_before_any_work(name: str, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DataError, match=rf"{name}.*not installed.*{remedy}"):
        check_words(Words(segmenter=name))
    check_words(Words())


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


def test_missing_pyahocorasick_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ahocorasick", None)
    with pytest.raises(DataError, match=r"pyahocorasick.*maskwright\[words\]"):
        check_words(Words(phrases=("collocations",)))


def test_model_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "spacy", fake_spacy())
    with pytest.raises(DataError, match=r"'spacy' cannot load its model 'zh_other' \(OSError.*rjieba"):
        check_words(Words(segmenter="spacy", model="zh_other"))
    with pytest.raises(DataError, match="has no model to choose"):
        check_words(Words(segmenter="rjieba", model="zh_other"))


def test_dictionary_for_a_segmenter_that_takes_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_text("语言模型\n", encoding="utf-8")
    with pytest.raises(DataError, match="takes no dictionary"):
        check_words(Words(segmenter="stanza", dictionary=str(tmp_path / "d.txt")))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"phrases": ["segmentr"]}, "did you mean 'segmenter'"),
        ({"phrases": ["segmenter"]}, "segmenter is 'none'"),
        ({"entities": ["tags"]}, "segmenter is 'none'"),
        ({"dictionary": "d.txt"}, "segmenter is 'none'"),
        ({"model": "zh"}, "segmenter is 'none'"),
        ({"phrases": ["corpus", "corpus"]}, "twice"),
        ({"entities": ["collocations"]}, "no source of the level 'entity'"),
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


def test_fingerprint_is_of_the_model_s_version_where_it_is_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = {"spacy": "3.8.0", "zh_core_web_sm": "3.7.0", "ltp": "4.2.0"}

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", version)
    usual, other, ltp = Words(segmenter="spacy"), Words(segmenter="spacy", model="my_model"), Words(segmenter="ltp")
    before = [words_fingerprint(words) for words in (usual, other, ltp)]
    installed["zh_core_web_sm"] = "3.8.0"
    after = [words_fingerprint(words) for words in (usual, other, ltp)]
    assert [first == second for first, second in zip(before, after, strict=True)] == [False, True, True]
    installed["my_model"] = "1.0.0"
    assert words_fingerprint(other) != after[1]


def test_fingerprint_needs_its_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the word list"):
        words_fingerprint(Words(phrases=(str(tmp_path / "gone.txt"),)))
