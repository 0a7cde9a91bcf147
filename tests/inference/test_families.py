"""Every family of transformers' folders is loaded, fills masks and gives vectors as transformers does."""

import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maskwright
from tests.checkpoints import tiny_models

# A unigram mask includes the space after it in transformers, so no text follows it.
TEXTS = ["the cat sat on the [MASK]", "we love the dog and the [MASK]"]
CONFIGS = {
    "Albert": partial(tiny_models.albert_config, hidden_act="gelu_pytorch_tanh"),
    "DistilBert": tiny_models.distilbert_config,
    "Electra": tiny_models.electra_config,
    "Ernie": tiny_models.ernie_config,
    # RoBERTa's architecture with a unigram tokenizer.
    "Camembert": tiny_models.roberta_config,
    "XLMRoberta": tiny_models.roberta_config,
}
_PIECES = ("the", "cat", "sat", "on", "mat", "we", "love", "and", "dog", "a", "ran", "to", "tree")


def _save_unigram_tokenizer(name: str, path: Path) -> int:
    """Save a tokenizer of XLM-RoBERTa's or CamemBERT's class; return its size."""
    import transformers

    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    if name == "Camembert":
        specials = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]
    pieces = [(f"\u2581{piece}", -1.0 - number) for number, piece in enumerate((*_PIECES, ""))]
    vocabulary = [*((special, 0.0) for special in specials), *pieces, ("<mask>", 0.0)]
    tokenizer = getattr(transformers, f"{name}Tokenizer")(vocab=vocabulary)
    tokenizer.save_pretrained(path)
    return len(tokenizer)


@pytest.fixture(scope="module", params=sorted(CONFIGS))
def folder(
    request: pytest.FixtureRequest,
    bert_folder: Path,
    save_as_trained: Callable[[Any, Path], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, Path]:
    """A tiny random model of a family, most with the words of `bert_folder`."""
    import torch
    import transformers

    name: str = request.param
    path: Path = tmp_path_factory.mktemp("families") / name.lower()
    if CONFIGS[name] is tiny_models.roberta_config:
        words = _save_unigram_tokenizer(name, path)
    else:
        shutil.copytree(bert_folder, path, ignore=shutil.ignore_patterns("*.json", "*.safetensors"))
        shutil.copy(bert_folder / "tokenizer_config.json", path)
        words = len((path / "vocab.txt").read_text(encoding="utf-8").splitlines())
    torch.manual_seed(0)
    shape = CONFIGS[name](vocab_size=words, max_position_embeddings=42, initializer_range=0.4).to_dict()
    config = getattr(transformers, f"{name}Config")(**shape)
    save_as_trained(getattr(transformers, f"{name}ForMaskedLM")(config), path)
    return name, path


def test_tokens_and_vectors_are_those_of_transformers(folder: tuple[str, Path]) -> None:
    import torch
    import transformers

    name, path = folder
    model = maskwright.load(path, device="cpu")
    with warnings.catch_warnings(action="ignore"):
        theirs = getattr(transformers, f"{name}ForMaskedLM").from_pretrained(path).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    for text, filled in zip(TEXTS, model.fill_mask(TEXTS, top_k=3), strict=True):
        ids = tokenizer(text.replace("[MASK]", tokenizer.mask_token), return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            scores = theirs(input_ids=ids).logits[ids == tokenizer.mask_token_id].softmax(-1)
        best = scores.topk(3)
        (actual,) = filled
        assert [guess.token_id for guess in actual] == best.indices[0].tolist()
        np.testing.assert_allclose([guess.score for guess in actual], best.values[0].numpy(), atol=1e-5, rtol=0)
    text = "a dog ran to the tree"
    with torch.inference_mode():
        hidden = theirs.base_model(input_ids=tokenizer(text, return_tensors="pt")["input_ids"]).last_hidden_state
    np.testing.assert_allclose(model.embed(text), hidden.mean(1).numpy(), atol=1e-5, rtol=0)
