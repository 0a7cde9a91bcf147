"""Phrases for texts in which a segmenter finds none, and a plain word where a level stays empty after all."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_runs import TOY, train_toy, write_corpus

from maskwright.core.storage.files import read_json
from maskwright.core.types import Documents
from maskwright.fitting.resolve import fit_phrases
from maskwright.recipes.catalog import resolve
from maskwright.training.start import preparation
from maskwright.training.start.preparation import span_warnings
from recording import Recorder

CHINESE = "张伟昨天去了北京大学。他在图书馆里学习机器学习的课程。王芳说上海的天气很好，我们明天一起去公园散步。"


def english(folder: Path) -> Path:
    return write_corpus(folder / "english.txt", documents=120)


def chinese(folder: Path) -> Path:
    file = folder / "chinese.txt"
    file.write_text("\n\n".join(f"{CHINESE}第{number}篇文章结束。" for number in range(40)), encoding="utf-8")
    return file


def run(corpus: Path, recipe: str = "ernie/tiny", settings: tuple[str, ...] = TOY, **more: Any) -> Recorder:
    recorder = Recorder()
    train_toy(corpus.parent, corpus=corpus, recipe=recipe, steps=2, set=settings, reporter=recorder, **more)
    return recorder


def test_english_text_gives_ernie_its_own_phrases_and_no_entities(tmp_path: Path) -> None:
    reported = run(english(tmp_path))
    [fitted] = reported.on("fitted", "words.phrases")
    assert fitted.startswith("words.phrases | segmenter | segmenter, collocations | ")
    assert "0% of the letters" in fitted
    [line] = reported.on("words", "phrases of two words or more")
    assert "open door" in line
    [warned] = reported.on("warning", "of two or more words was found")
    assert warned.startswith("no entity of two or more words was found; masking 'levels' masks single words")
    assert "in 33% of training" in warned
    assert "--set words.entities=[names.txt]" in warned
    assert read_json(tmp_path / "run" / "recipe.json")["words"]["phrases"] == ["segmenter", "collocations"]


@pytest.mark.parametrize("way", ["as published", "set by the user", "without the library"])
def test_where_nothing_is_fitted_a_hint_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    settings: tuple[str, ...] = TOY
    if way == "set by the user":
        settings = (*TOY, "words.phrases=[segmenter]")
    if way == "without the library":
        monkeypatch.setattr(preparation, "has_lexicon_search", lambda: False)
    reported = run(english(tmp_path), settings=settings, as_published=way == "as published")
    assert not reported.on("fitted", "words.phrases")
    [warned] = reported.on("warning", "no phrase of two or more words")
    assert "--set words.phrases=[collocations]" in warned


def test_chinese_text_is_as_published_and_needs_no_word(tmp_path: Path) -> None:
    reported = run(chinese(tmp_path))
    assert not reported.on("fitted", "words.phrases")
    assert not reported.on("warning", "of two or more words was found")
    assert reported.on("words", "phrases of two characters or more")


def test_a_corpus_without_collocations_is_warned_of(tmp_path: Path) -> None:
    reported = run(write_corpus(tmp_path / "small.txt", documents=3), recipe="pmi/tiny")
    [warned] = reported.on("warning", "no phrase of two or more words")
    assert "masking 'pmi' masks single words instead, in 100% of training" in warned
    assert "--set words.phrases=[phrases.txt]" in warned


def test_held_out_text_needs_no_collocations_of_a_corpus_that_has_none(tmp_path: Path) -> None:
    held_out = write_corpus(tmp_path / "held_out.txt", documents=20, seed=1)
    reported = run(write_corpus(tmp_path / "small.txt", documents=3), held_out=held_out)
    assert reported.on("fitted", "words.phrases | segmenter | segmenter, collocations")
    assert reported.on("health", "held-out")


@pytest.mark.parametrize(
    ("recipe", "chinese", "fixed", "phrases"),
    [
        ("ernie/base", 0.0, (), ("segmenter", "collocations")),
        ("ernie/base", 0.49, (), ("segmenter", "collocations")),
        ("ernie/base", 0.5, (), ("segmenter",)),
        ("ernie/base", 0.0, ("words.phrases",), ("segmenter",)),
        ("ernie/base", 0.0, ("words",), ("segmenter",)),
        ("pmi/base", 0.0, (), ("collocations",)),
        ("bert-wwm/base", 0.0, (), ()),
    ],
)
def test_phrases_are_fitted_to_the_script_unless_the_user_chose(recipe, chinese, fixed, phrases):
    before = resolve(recipe)
    after, choices = fit_phrases(before, chinese, fixed)
    assert after.words.phrases == phrases
    assert [choice.field for choice in choices] == (["words.phrases"] if after != before else [])


def test_a_level_that_masking_does_not_hide_is_not_missed() -> None:
    recipe = resolve("ernie/base", ["masking={basic: 0.5, phrase: 0.5, entity: 0}"])
    nothing = {"units": 0, "share_of_tokens": 0.0}
    [warning] = span_warnings(recipe, {"phrase": nothing, "entity": nothing})
    assert warning.startswith("no phrase")
    assert "in 50% of training" in warning
    assert not list(span_warnings(recipe, {"phrase": {"units": 9, "share_of_tokens": 0.5}, "entity": nothing}))


def test_a_level_with_few_units_is_warned_of() -> None:
    few, many = ({"units": 9, "share_of_tokens": share} for share in (0.01, 0.06))
    [warning] = span_warnings(resolve("ernie/base"), {"phrase": many, "entity": few})
    assert "1.0% of the tokens are in entity spans" in warning
    assert "in 33% of training" in warning
    assert not list(span_warnings(resolve("ernie/base"), {"phrase": many, "entity": many}))


def test_documents_of_one_sentence_are_warned_of_if_pairs_are_predicted(tmp_path: Path) -> None:
    single = english(tmp_path).read_text(encoding="utf-8").replace(". ", " and ")
    corpus = tmp_path / "single.txt"
    corpus.write_text(f"{single}\n\n{'The cat likes the long road. ' * 3}", encoding="utf-8")
    [warning] = run(corpus, "bert/tiny").on("warning", "two sentences")
    assert warning.startswith("only 1 of ")
    assert "objective 'nsp'" in warning
    remedy = ("format=full_sentences", "objectives=[mlm]")
    assert all(setting in warning for setting in remedy)
    assert not run(corpus, "bert/tiny", (*TOY, *remedy), out="without").on("warning", "two sentences")
    assert not run(english(tmp_path), "bert/tiny", out="english").on("warning", "two sentences")


def test_vectors_of_sentences_need_no_pairs() -> None:
    single = Documents(np.arange(1, 11), first=np.arange(10), last=np.arange(1, 11))
    assert len(list(preparation.pair_warnings(resolve("bert/base"), single))) == 1
    assert not list(preparation.pair_warnings(resolve("embedder/tiny"), single))


def test_short_documents_that_were_left_out_are_counted_on_the_screen(tmp_path: Path) -> None:
    corpus = english(tmp_path)
    corpus.write_text("Short.\n\nBrief.\n\n" + corpus.read_text(encoding="utf-8"), encoding="utf-8")
    assert any(", 2 short documents left out" in line for line in run(corpus).on("corpus", ""))
