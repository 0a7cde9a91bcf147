from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_samples import awkward_text
from word_samples import SCRIPTS, cuts_of, encoded, surfaces, trained_tokenizers, written_words

from maskwright.core.randomness import Draws
from maskwright.core.types import Instances
from maskwright.pretext.masking.whole_word import WholeWordMasking
from maskwright.text.stream_encoder import StreamEncoder
from maskwright.text.tokenizer import Tokenizer
from maskwright.text.words.annotator import Annotation, Annotator
from maskwright.text.words.lexicon import Lexicon, spans_of
from maskwright.text.words.segmenters import open_segmenter
from maskwright.text.words_spec import Words

KINDS = ["wordpiece", "byte_bpe", "unigram"]
WWM = Words(segmenter="rjieba")
ERNIE = Words(segmenter="rjieba", units="characters", phrases=("segmenter",), entities=("tags",))
EVERY_SENTENCE = [sentence for sentences in SCRIPTS.values() for sentence in sentences]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    return trained_tokenizers(tmp_path_factory.mktemp("trained"))


def annotated(tokenizer: Tokenizer, words: Words, sentences: list[str], **lexicons: list[str]) -> Annotation:
    segmenter = None if words.segmenter == "none" else open_segmenter(words.segmenter)
    found = {level: [Lexicon(entries)] for level, entries in lexicons.items()}
    return Annotator(words, segmenter, found).annotate(sentences, encoded(tokenizer, sentences))


def units(tokenizer: Tokenizer, words: Words, sentence: str, level: str = "word", **lexicons: list[str]) -> list[str]:
    found = annotated(tokenizer, words, [sentence], **lexicons)
    starts = found.word_starts if level == "word" else found.level_starts[level]
    return surfaces(encoded(tokenizer, [sentence]), starts, sentence)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("script", SCRIPTS)
def test_no_unit_begins_within_a_written_word(script: str, kind: str, tokenizers: dict[str, Tokenizer]) -> None:
    sentences = list(SCRIPTS[script])
    stream = encoded(tokenizers[kind], sentences)
    cuts = cuts_of(stream, annotated(tokenizers[kind], WWM, sentences).word_starts)
    offsets = accumulate(map(len, sentences), initial=0)
    words = [
        (start + offset, end + offset)
        for sentence, offset in zip(sentences, offsets, strict=False)
        for start, end in written_words(sentence)
    ]
    assert len(words) > 6
    assert [(start, end) for start, end in words if cuts & set(range(start + 1, end))] == []


@pytest.mark.parametrize("kind", KINDS)
def test_segmented_words_are_units_wherever_no_token_straddles(kind: str, tokenizers: dict[str, Tokenizer]) -> None:
    # Not trivially whole: words do begin where words begin.
    sentence = "使用语言模型来预测下一个词的概率。"
    stream = encoded(tokenizers[kind], [sentence])
    assert stream.places is not None
    cuts = cuts_of(stream, annotated(tokenizers[kind], WWM, [sentence]).word_starts)
    begins = {start for start, _ in written_words(sentence)}
    covered = set(stream.places.first[stream.places.begins_character].tolist())
    assert cuts & begins == begins & covered
    assert len(cuts & begins) >= 5
    if kind == "wordpiece":
        assert units(tokenizers[kind], WWM, sentence) == [
            *("使用", "语言", "模型", "来", "预测", "下", "一个", "词", "的", "概率", "。")
        ]


@pytest.mark.parametrize("kind", KINDS)
def test_whole_word_masks_hide_a_chinese_word_whole_and_keep_the_rate(
    kind: str, tokenizers: dict[str, Tokenizer]
) -> None:
    sentences = EVERY_SENTENCE * 3
    stream, found = encoded(tokenizers[kind], sentences), annotated(tokenizers[kind], WWM, sentences)
    assert stream.places is not None
    length, count = len(stream.ids), 200
    ids, starts = np.tile(stream.ids, count), np.tile(found.word_starts, count)
    nothing = np.zeros(len(ids), dtype=np.bool_)
    instances = Instances(
        ids=ids,
        segment_ids=nothing.astype(np.int8),
        word_starts=starts,
        special=nothing,
        cu_seqlens=np.arange(count + 1) * length,
        pair_labels=np.full(count, -1, dtype=np.int8),
    )
    masking = WholeWordMasking(rate=0.15, max_targets=None)
    number = np.arange(count)
    masked = np.zeros(len(ids), dtype=np.bool_)
    masked[masking.select(instances, Draws(0, np.zeros(count, dtype=np.int64), number)).positions] = True
    masked = masked.reshape(count, length)
    text = "".join(sentences)
    seen = 0
    for place in (at for at in range(len(text)) if text.startswith("模型", at)):
        inside = (stream.places.first < place + 2) & (stream.places.end > place)
        both = masked[:, inside]
        assert (both.all(axis=1) == both.any(axis=1)).all()
        seen += int(both.any(axis=1).sum())
    assert seen > 100
    assert masked.mean() == pytest.approx(0.15, abs=0.005)


@pytest.mark.parametrize("kind", KINDS)
def test_joiners_within_words_part_nothing(kind: str, tokenizers: dict[str, Tokenizer]) -> None:
    persian, hindi = SCRIPTS["persian"][0], SCRIPTS["devanagari"][2]
    words = ["من", "می\u200cخواهم", "کتاب\u200cهای", "تازه", "بخوانم"]
    assert units(tokenizers[kind], Words(), persian)[:5] == words
    assert units(tokenizers[kind], Words(), hindi)[1:4] == ["क्\u200dष", "और", "क्\u200cष"]


def test_japanese_keeps_the_tokenizers_words(tokenizers: dict[str, Tokenizer]) -> None:
    for tokenizer in tokenizers.values():
        own = StreamEncoder(tokenizer).encode(list(SCRIPTS["japanese"]))
        found = annotated(tokenizer, WWM, list(SCRIPTS["japanese"]))
        assert found.word_starts.tolist() == own.word_starts.tolist()


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


@settings(max_examples=60)
@given(sentences=st.lists(st.one_of(awkward_text, st.sampled_from(EVERY_SENTENCE)), max_size=5))
@pytest.mark.parametrize("kind", KINDS)
def test_levels_are_made_of_whole_words_and_ids_do_not_change(
    kind: str, sentences: list[str], tokenizers: dict[str, Tokenizer]
) -> None:
    stream, plain = encoded(tokenizers[kind], sentences), StreamEncoder(tokenizers[kind]).encode(sentences)
    assert stream.ids.tolist() == plain.ids.tolist()
    assert stream.word_starts.tolist() == plain.word_starts.tolist()
    firsts = (np.cumsum(stream.lengths) - stream.lengths)[stream.lengths > 0]
    for words in (WWM, ERNIE, Words(units="characters"), Words(phrases=("some.txt",))):
        found = annotated(tokenizers[kind], words, sentences, phrase=["the", "模型", "word, the"])
        assert found.word_starts[firsts].all()
        for starts in found.level_starts.values():
            assert not (starts & ~found.word_starts).any()
            assert starts[firsts].all()


def test_given_spans_grow_to_whole_words_and_lexicon_entries_never_cut_one(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer, sentence = tokenizers["wordpiece"], "北京大学的模型在New York运行。"
    words = Words(segmenter="rjieba", phrases=("corpus", "list.txt"))
    stream = encoded(tokenizer, [sentence])
    annotator = Annotator(words, open_segmenter("rjieba"), {"phrase": [Lexicon(["京大", "在New York"])]})
    # 型在 grows to 模型|在, and the longer entry that overlaps it stands back: it begins later.
    found = annotator.annotate([sentence], stream, {"phrase": spans_of([(6, 8)])})
    assert found.found["phrase"] == ["模型在"]
    assert annotator.annotate([sentence], stream).found["phrase"] == ["在New York"]


def test_given_span_over_a_sentences_end_is_lost_and_counted(tokenizers: dict[str, Tokenizer]) -> None:
    sentences = ["New York", " Los Angeles"]
    annotator = Annotator(Words(entities=("corpus",)), None, {})
    stream = encoded(tokenizers["wordpiece"], sentences)
    found = annotator.annotate(sentences, stream, {"entity": spans_of([(0, 8), (4, 12)])})
    assert (found.found["entity"], found.lost["entity"]) == (["New York"], 1)
    assert found.tokens_inside["entity"] == int(stream.lengths[0])
