"""Masks are filled as transformers fills them, in any number, at any length, in the order of the texts."""

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.errors import ConversionError, MaskwrightError
from maskwright.data.tokenizers.spec import Unigram
from maskwright.data.tokenizers.training import train_unigram
from maskwright.inference.batches import BATCH_TOKENS
from maskwright.inference.fill_mask import _window, read_masks
from maskwright.inference.long_texts import TruncationWarning
from maskwright.inference.model import Model, UntrainedHead, load

BERT_TEXTS = [
    "the cat sat on the [MASK].",
    "[MASK]",
    "We love the [MASK] and the [MASK], [MASK] the dog! (a cat ran to the tree)",
    "我爱[MASK]京天安门",
    "你[MASK]的 cats[MASK]",
]
ROBERTA_TEXTS = [
    "the cat sat on the <mask>.",
    "<mask> sat",
    "We love the <mask> and the <mask>, <mask> the dog!",
    "我爱<mask>京",
]
# Behind a mask transformers writes a space that is not in the text ("▁." for "."), so none but spaces follow here.
UNIGRAM_TEXTS = ["the cat sat on the [MASK]", "The [MASK]  sat, and the [MASK] ran", "我爱[MASK] the"]


@pytest.fixture(scope="module")
def bert(bert_folder: Path) -> Model:
    return load(bert_folder, device="cpu")


@pytest.fixture(scope="module")
def roberta(roberta_folder: Path) -> Model:
    return load(roberta_folder, device="cpu")


@pytest.fixture(scope="module")
def unigram_folder(save_as_trained: Callable[[Any, Path], None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random BertForMaskedLM whose vocabulary is a unigram one."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    folder = tmp_path_factory.mktemp("models") / "tiny-unigram"
    texts = ["The cats sat on the mat, and the dogs ran to the tree. We love the cat's mat!", "我爱北京。"] * 20
    tokenizer = train_unigram(Unigram(vocab_size=120), texts, texts)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    vocab_size = tokenizer.special_tokens.vocab_size
    torch.manual_seed(0)
    config = BertConfig(vocab_size=vocab_size, max_position_embeddings=40, **shape)
    save_as_trained(BertForMaskedLM(config), folder)
    tokenizer.save(folder, max_length=40)
    return folder


@pytest.fixture(scope="module")
def unigram(unigram_folder: Path) -> Model:
    return load(unigram_folder, device="cpu")


@functools.cache
def _theirs(folder: Path) -> Any:
    from transformers import pipeline

    with warnings.catch_warnings(action="ignore"):
        return pipeline("fill-mask", model=str(folder), top_k=5)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("bert", text) for text in BERT_TEXTS),
        *(("roberta", text) for text in ROBERTA_TEXTS),
        *(("unigram", text) for text in UNIGRAM_TEXTS),
    ],
)
def test_fill_mask_equals_transformers(name: str, text: str, request: pytest.FixtureRequest) -> None:
    expected = _theirs(request.getfixturevalue(f"{name}_folder"))(text)
    expected = expected if isinstance(expected[0], list) else [expected]
    (filled,) = request.getfixturevalue(name).fill_mask(text, top_k=5)
    assert len(filled) == len(expected)
    for ours, theirs in zip(filled, expected, strict=True):
        assert [best.token_id for best in ours] == [best["token"] for best in theirs]
        assert [best.score for best in ours] == pytest.approx([best["score"] for best in theirs], abs=1e-5)


def test_read_masks_finds_each_mask_and_its_characters(bert: Model, unigram: Model) -> None:
    for model, text, count in ((bert, "the [MASK]s 我<mask>", 2), (unigram, "the cat<mask>.", 1)):
        masked = read_masks(text, "x", model.tokenizer, 40)
        assert masked.ids[masked.positions].tolist() == [model.tokenizer.special_tokens.mask] * count
        assert [masked.text[start:end] for start, end in masked.spans] == ["[MASK]"] * count
    # Text behind a unigram mask is tokenized as in training.
    assert unigram.tokenizer.tokens(masked.ids)[-3:] == ["[MASK]", ".", "[SEP]"]


@pytest.mark.parametrize("batch_tokens", [1, 30, 8192])
def test_fill_mask_keeps_the_order_of_the_texts(batch_tokens, bert, monkeypatch):
    monkeypatch.setitem(BATCH_TOKENS, "cpu", batch_tokens)
    assert bert.fill_mask([]) == []
    together = bert.fill_mask(BERT_TEXTS)
    for text, masks in zip(BERT_TEXTS, together, strict=True):
        (alone,) = bert.fill_mask([text])
        assert len(masks) == text.count("[MASK]")
        for mask, mask_alone in zip(masks, alone, strict=True):
            assert [best.sequence for best in mask] == [best.sequence for best in mask_alone]
            assert [best.score for best in mask] == pytest.approx([best.score for best in mask_alone], abs=1e-6)


def test_fill_mask_takes_either_form_of_the_mask(bert: Model, roberta: Model, unigram: Model) -> None:
    for model in (bert, roberta, unigram):
        assert model.fill_mask("the <mask> sat") == model.fill_mask("the [MASK] sat")


def test_fill_mask_scores_are_probabilities_best_first(bert: Model) -> None:
    vocab_size = bert.tokenizer.special_tokens.vocab_size
    ((best,),) = bert.fill_mask("the [MASK] sat", top_k=vocab_size)
    scores = [token.score for token in best]
    assert sum(scores) == pytest.approx(1, abs=1e-5)
    assert scores == sorted(scores, reverse=True)
    assert sorted(token.token_id for token in best) == list(range(vocab_size))


@pytest.mark.parametrize(
    ("name", "text", "sequences"),
    [
        ("bert", "The Cat [MASK],", {"dog": "The Cat dog,", "##s": "The Cats,"}),
        ("bert", "[MASK] 我[MASK]京", {"爱": "[MASK] 我爱京"}),
        ("roberta", "the <mask> on", {" sat": "the sat on", "s": "thes on"}),
        ("roberta", "so<mask>", {" sat": "so sat"}),
        ("roberta", "<mask> on", {" sat": "sat on"}),
        ("unigram", "The Cat [MASK] on.", {" mat": "The Cat mat on.", "s": "The Cats on."}),
        ("unigram", "The Cat[MASK].", {" mat": "The Cat mat.", "s": "The Cats."}),
        ("unigram", "[MASK] Cat", {" mat": "mat Cat", "s": "s Cat"}),
    ],
)
def test_filled_tokens_are_joined_to_the_text(name, text, sequences, request):
    model: Model = request.getfixturevalue(name)
    (masks,) = model.fill_mask(text, top_k=model.tokenizer.special_tokens.vocab_size)
    actual = {token.token: token.sequence for token in masks[-1]}
    assert {token: actual[token] for token in sequences} == sequences


def test_fill_mask_reads_a_long_text_around_its_mask(bert: Model) -> None:
    words = ["cat"] * 60
    words[50] = "[MASK]"
    with pytest.warns(TruncationWarning, match=r"1 of 2 texts have more than 40 tokens.* around the masks .*texts 2\)"):
        short, long = bert.fill_mask(["the [MASK]", " ".join(words)])
    (window,) = bert.fill_mask(" ".join(words[22:60]))
    assert [best.score for best in long[0]] == pytest.approx([best.score for best in window[0]], abs=1e-6)
    assert long[0][0].sequence.split().count("cat") >= 59
    assert len(short) == 1


@given(length=st.integers(1, 60), limit=st.integers(1, 30), first=st.integers(0, 59), span=st.integers(1, 30))
def test_window_holds_the_masks_and_as_much_as_it_can(length: int, limit: int, first: int, span: int) -> None:
    first = min(first, length - 1)
    last = min(first + span, length)
    low, high = _window(first, last, length, limit)
    assert 0 <= low <= high <= length
    assert high - low == min(limit, length)
    if last - first <= limit:
        assert low <= first
        assert last <= high
        if low > 0 and high < length:
            assert abs((first - low) - (high - last)) <= 1


@pytest.mark.parametrize(
    ("texts", "top_k", "message"),
    [
        (
            ["a [MASK]", " ".join(["[MASK]", *["cat"] * 50, "[MASK]"])],
            5,
            r"text 2 has masks 51 tokens apart.*within 38 tokens.*Split the text",
        ),
        ("the cat", 5, r"the text has no mask: 'the cat'.*\[MASK\] or <mask>"),
        ("the [MASK]", 0, "size of the vocabulary"),
        ("the [MASK]", 1000, "size of the vocabulary"),
    ],
)
def test_fill_mask_refuses_what_it_cannot_fill(texts: str | list[str], top_k: int, message: str, bert: Model) -> None:
    with pytest.raises(MaskwrightError, match=message):
        bert.fill_mask(texts, top_k=top_k)


def test_a_newly_initialized_head_is_warned_of(bert_folder: Path, tmp_path: Path) -> None:
    import shutil

    from transformers import BertForMaskedLM, BertModel

    shutil.copytree(bert_folder, tmp_path / "body")
    BertModel.from_pretrained(bert_folder).save_pretrained(tmp_path / "body")
    shutil.copytree(tmp_path / "body", tmp_path / "headed")
    # transformers adds a random head to a model without one.
    BertForMaskedLM.from_pretrained(tmp_path / "body").save_pretrained(tmp_path / "headed")
    with pytest.raises(ConversionError, match="no head for masked tokens"):
        load(tmp_path / "body").fill_mask("the [MASK]")
    with pytest.warns(UntrainedHead, match="newly initialized"):
        load(tmp_path / "headed").fill_mask("the [MASK]")
