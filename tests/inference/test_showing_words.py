from pathlib import Path

import pytest

from maskwright.data.tokenizers.backends import WORDPIECE_NAMES, bert_normalizer, wordpiece_backend
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.words.spec import Words
from maskwright.inference.showing import ShownSequence, show
from maskwright.recipes.catalog import resolve

TEXT = "使用语言模型来预测下一个词的概率。"


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    vocabulary = {token: number for number, token in enumerate([*WORDPIECE_NAMES, *sorted(set(TEXT))])}
    Tokenizer(wordpiece_backend(vocabulary, normalizer=bert_normalizer(lowercase=True)), WORDPIECE_NAMES).save(tmp_path)
    return tmp_path


def words_of(sequence: ShownSequence) -> list[str]:
    words: list[str] = []
    for token in sequence.tokens:
        if token.begins_word:
            words.append("")
        words[-1] += token.original
    return words


def test_shown_text_is_cut_as_a_corpus_would_be(tokenizer: Path) -> None:
    recipe = resolve("bert/tiny").replace(words=Words(segmenter="rjieba"))
    shown = show(recipe, TEXT, tokenizer=tokenizer)
    assert {"使用", "语言", "模型", "概率"} <= set(words_of(shown.sequences[0]))
    plain = show("bert/tiny", TEXT, tokenizer=tokenizer)
    assert {"使", "用"} <= set(words_of(plain.sequences[0]))


@pytest.mark.parametrize(("source", "noted"), [("collocations", True), ("segmenter", False)])
def test_phrases_that_belong_to_a_corpus_are_noted_as_not_shown(source: str, noted: bool, tokenizer: Path) -> None:
    recipe = resolve("bert/tiny").replace(words=Words(segmenter="rjieba", phrases=(source,)))
    notes = show(recipe, TEXT, tokenizer=tokenizer).notes
    assert any("need a corpus" in note for note in notes) == noted
