"""Vectors equal transformers' hidden states under the usual pooling, whatever shares a batch."""

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maskwright.core.errors import MaskwrightError
from maskwright.inference.batches import BATCH_TOKENS, batches
from maskwright.inference.embed import nearest_texts
from maskwright.inference.long_texts import TruncationWarning
from maskwright.inference.model import Model, load

TEXTS = [
    "the cat sat on the mat.",
    "我爱北京天安门",
    "",
    "a dog ran to the tree and the cats ran, we love the dog!",
    "cat",
]


@pytest.fixture(scope="module")
def models(bert_folder: Path, roberta_folder: Path) -> dict[str, Model]:
    return {"bert": load(bert_folder, device="cpu"), "roberta": load(roberta_folder, device="cpu")}


@functools.cache
def _theirs(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModel, AutoTokenizer

    with warnings.catch_warnings(action="ignore"):
        return AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("batch_tokens", [20, 8192])
def test_embed_equals_transformers(family, pooling, batch_tokens, models, request, monkeypatch):
    monkeypatch.setitem(BATCH_TOKENS, "cpu", batch_tokens)
    theirs, tokenizer = _theirs(request.getfixturevalue(f"{family}_folder"))
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.inference_mode():
        hidden = theirs(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).last_hidden_state
    mask = inputs["attention_mask"][:, :, None].float()
    expected = hidden[:, 0] if pooling == "first" else (hidden * mask).sum(1) / mask.sum(1)
    vectors = models[family].embed(TEXTS, pooling=pooling)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected.numpy(), atol=1e-5, rtol=0)


def test_embed_normalizes_to_length_one(models: dict[str, Model]) -> None:
    plain, scaled = models["bert"].embed(TEXTS), models["bert"].embed(TEXTS, normalize=True)
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(scaled, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-6)


def test_embed_truncates_a_long_text_with_a_warning(models: dict[str, Model]) -> None:
    long = " ".join(["cat"] * 100)
    with pytest.warns(TruncationWarning, match=r"1 of 2 texts .*ignored \(texts 2\)"):
        vectors = models["bert"].embed(["dog", long])
    np.testing.assert_allclose(vectors[1], models["bert"].embed(" ".join(["cat"] * 38))[0], atol=1e-6)


def test_windows_give_the_mean_of_all_tokens_of_a_long_text(models: dict[str, Model]) -> None:
    model = models["bert"]
    words = ["cat", "dog", "tree", "the", "we", "love", "ran"] * 12
    long = " ".join(words)
    vectors = model.embed(["dog", long, "cat"], windows=True)
    np.testing.assert_allclose(vectors[[0, 2]], model.embed(["dog", "cat"]), atol=1e-6)
    # 38 words fit into 40 tokens; each window repeats the last 9 words of the one before.
    windows = [words[start : start + 38] for start in range(0, len(words) - 9, 29)]
    parts = model.embed([" ".join(window) for window in windows])
    weights = np.array([len(window) + 2.0 for window in windows])
    mean = (parts * weights[:, None]).sum(axis=0) / weights.sum()
    np.testing.assert_allclose(vectors[1], mean, atol=1e-6)
    scaled = model.embed([long], windows=True, normalize=True)[0]
    np.testing.assert_allclose(scaled, mean / np.linalg.norm(mean), atol=1e-6)


def test_the_maximum_length_is_chosen_within_the_positions(models: dict[str, Model]) -> None:
    model, long = models["bert"], " ".join(["cat", "dog"] * 8)
    with pytest.warns(TruncationWarning, match=r"more than 12 tokens.*--windows"):
        short = model.embed(long, max_length=12)
    np.testing.assert_allclose(short, model.embed(" ".join(["cat", "dog"] * 5)), atol=1e-6)
    positions = model.encoder.config.max_positions
    for wrong in (2, positions + 1):
        with pytest.raises(MaskwrightError, match=rf"max_length is {wrong}.*3 to {positions}"):
            model.embed(long, max_length=wrong)


def test_embed_reports_progress_up_to_the_end(models: dict[str, Model], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BATCH_TOKENS, "cpu", 16)
    seen: list[tuple[str, int, int | None]] = []
    models["bert"].embed(TEXTS, progress=lambda *progress_of: seen.append(progress_of))
    done = [progress_of[1] for progress_of in seen]
    assert done == sorted(done)
    assert len(seen) > 1
    assert seen[-1][1] == seen[-1][2]


def test_embed_takes_one_text_and_none_and_refuses_an_unknown_pooling(models: dict[str, Model]) -> None:
    assert (models["bert"].embed("cat").shape, models["bert"].embed([]).shape) == ((1, 32), (0, 32))
    with pytest.raises(MaskwrightError, match=r"unknown pooling 'men'.*mean"):
        models["bert"].embed("cat", pooling="men")


@pytest.mark.parametrize("tokens", [1, 7, 16, 1000])
def test_batches_hold_every_text_once_and_apart(tokens: int) -> None:
    sequences = [np.arange(1, length + 1) + 100 * number for number, length in enumerate([3, 9, 1, 4, 4, 7, 2])]
    segments, seen = [each % 2 for each in sequences], []
    for laid in batches(sequences, segments, tokens=tokens, device=torch.device("cpu")):
        batch = laid.batch
        assert batch.num_tokens <= tokens or len(laid.texts) == 1
        for text, start in zip(laid.texts, laid.starts, strict=True):
            slots = slice(start, start + len(sequences[text]))
            assert batch.ids[slots].tolist() == sequences[text].tolist()
            assert batch.segment_ids[slots].tolist() == segments[text].tolist()
            assert batch.position_ids[slots].tolist() == list(range(len(sequences[text])))
        assert batch.first_tokens.tolist() == laid.starts.tolist()
        seen += laid.texts.tolist()
    assert sorted(seen) == list(range(len(sequences)))


def test_nearest_texts_are_the_most_similar_others() -> None:
    vectors = np.array([[1, 0], [0, 1], [3, 0.1], [0, 0]], dtype=np.float32)
    nearest, similarity = nearest_texts(vectors)
    assert nearest[:3].tolist() == [2, 2, 0]
    assert similarity[0] == pytest.approx(3 / np.hypot(3, 0.1))
    assert similarity[3] == 0
