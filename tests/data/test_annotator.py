from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_samples import awkward_text
from word_samples import SCRIPTS, cuts_of, encoded, surfaces, trained_tokenizers, written_words

from maskwright.data.tokenizers.stream_encoder import StreamEncoder, TokenStream
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.words.annotator import Annotation, Annotator
from maskwright.data.words.lexicon import Lexicon
from maskwright.data.words.segmenters import open_segmenter
from maskwright.data.words.spec import Words

KINDS = ["wordpiece", "byte_bpe", "unigram"]
WWM = Words(segmenter="rjieba")
ERNIE = Words(segmenter="rjieba", units="characters", phrases=("segmenter",), entities=("tags",))
EVERY_SENTENCE = [sentence for sentences in SCRIPTS.values() for sentence in sentences]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    return trained_tokenizers(tmp_path_factory.mktemp("trained"))


def annotated(tokenizer: Tokenizer, words: Words, sentences: list[str], **lexicons: list[str]) -> Annotation:
    segmenter = open_segmenter(words)
    loaded = {level: [Lexicon(entries)] for level, entries in lexicons.items()}
    return Annotator(words, segmenter, loaded).annotate(sentences, encoded(tokenizer, sentences))


def units(tokenizer: Tokenizer, words: Words, sentence: str, level: str = "word", **lexicons: list[str]) -> list[str]:
    actual = annotated(tokenizer, words, [sentence], **lexicons)
    starts = actual.word_starts if level == "word" else actual.span_starts[level]
    return surfaces(encoded(tokenizer, [sentence]), starts, sentence)


def both_of(tokenizer: Tokenizer, sentences: list[str]) -> tuple[TokenStream, Annotation]:
    return encoded(tokenizer, sentences), annotated(tokenizer, WWM, sentences)


def positions_of_words(sentences: list[str]) -> list[tuple[int, int]]:
    """The written words of all sentences joined."""
    offsets = accumulate(map(len, sentences), initial=0)
    return [
        (start + offset, end + offset)
        for sentence, offset in zip(sentences, offsets, strict=False)
        for start, end in written_words(sentence)
    ]


def test_segmented_words_are_units(tokenizers: dict[str, Tokenizer]) -> None:
    words = ["使用", "语言", "模型", "来", "预测", "下", "一个", "词", "的", "概率", "。"]
    assert units(tokenizers["wordpiece"], WWM, "".join(words)) == words


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("script", [script for script in SCRIPTS if script != "japanese"])
def test_units_begin_where_written_words_begin(script: str, kind: str, tokenizers: dict[str, Tokenizer]) -> None:
    # Else one unit for all would be whole, too. Japanese keeps the tokenizer's words, see below.
    text = "".join(SCRIPTS[script])
    stream, actual = both_of(tokenizers[kind], list(SCRIPTS[script]))
    cuts = cuts_of(stream, actual.word_starts)
    words = positions_of_words(list(SCRIPTS[script]))
    begun = 0
    for start, _ in words:
        straddled = ((stream.offsets.first < start) & (stream.offsets.end > start)).any()
        # A token of white space alone belongs to the word behind it.
        assert straddled or cuts & {start, start - text[start - 1].isspace()}, text[start:]
        begun += not straddled
    assert begun >= (5 if script == "chinese" else len(words))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("script", SCRIPTS)
def test_no_unit_begins_within_a_written_word(script: str, kind: str, tokenizers: dict[str, Tokenizer]) -> None:
    sentences = list(SCRIPTS[script])
    stream, actual = both_of(tokenizers[kind], sentences)
    unit_of = np.cumsum(actual.word_starts)
    for start, end in positions_of_words(sentences):
        inside = (stream.offsets.first < end) & (stream.offsets.end > start)
        assert len(set(unit_of[inside].tolist())) == 1, "".join(sentences)[start:end]


def test_japanese_keeps_the_tokenizers_words(tokenizers: dict[str, Tokenizer]) -> None:
    for tokenizer in tokenizers.values():
        expected = StreamEncoder(tokenizer).encode(list(SCRIPTS["japanese"]))
        actual = annotated(tokenizer, WWM, list(SCRIPTS["japanese"]))
        assert actual.word_starts.tolist() == expected.word_starts.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_characters_are_units_and_words_are_phrases(kind: str, tokenizers: dict[str, Tokenizer]) -> None:
    sentence = "北京大学的研究人员训练了模型。"
    phrases = units(tokenizers[kind], ERNIE, sentence, "phrase")
    entities = units(tokenizers[kind], ERNIE, sentence, "entity")
    if kind == "wordpiece":
        assert units(tokenizers[kind], ERNIE, sentence) == list(sentence)
        assert phrases == ["北京大学", "的", "研究", "人员", "训练", "了", "模型", "。"]
        assert entities == ["北京大学", *"的研究人员训练了模型。"]
    assert phrases[0].startswith("北京大学")
    assert entities[0].startswith("北京大学")


@settings(max_examples=30)
@given(sentences=st.lists(st.one_of(awkward_text, st.sampled_from(EVERY_SENTENCE)), max_size=5))
@pytest.mark.parametrize("kind", KINDS)
def test_levels_are_made_of_whole_words_and_ids_do_not_change(kind, sentences, tokenizers):
    stream, plain = encoded(tokenizers[kind], sentences), StreamEncoder(tokenizers[kind]).encode(sentences)
    assert stream.ids.tolist() == plain.ids.tolist()
    assert stream.word_starts.tolist() == plain.word_starts.tolist()
    firsts = (np.cumsum(stream.lengths) - stream.lengths)[stream.lengths > 0]
    for words in (WWM, ERNIE, Words(units="characters"), Words(phrases=("some.txt",))):
        actual = annotated(tokenizers[kind], words, sentences, phrase=["the", "模型", "word, the"])
        assert actual.word_starts[firsts].all()
        for starts in actual.span_starts.values():
            assert not (starts & ~actual.word_starts).any()
            assert starts[firsts].all()


def test_lexicon_entries_never_cut_a_word(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer, sentence = tokenizers["wordpiece"], "北京大学的模型在New York运行。"
    annotator = Annotator(
        Words(segmenter="rjieba", phrases=("list.txt",)),
        open_segmenter(WWM),
        {"phrase": [Lexicon(["京大", "在New York"])]},
    )
    actual = annotator.annotate([sentence], encoded(tokenizer, [sentence]))
    assert list(actual.facts["phrase"].counts) == ["在New York"]


def test_words_of_traditional_text_are_those_of_its_simplified_form(tokenizers: dict[str, Tokenizer]) -> None:
    pytest.importorskip("opencc")
    [tokenizer] = [tokenizers["byte_bpe"]]
    words = units(tokenizer, WWM, "無邊落木蕭蕭下，不盡長江滾滾來")
    assert {"蕭蕭", "不盡", "長江", "滾滾"} <= set(words)
    # 長江 is a name; a simplified sentence is not converted.
    assert "長江" in units(tokenizer, ERNIE, "無邊落木蕭蕭下，不盡長江滾滾來", "entity")
