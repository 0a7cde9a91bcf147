"""Controls of a study: the unigram model of its training text, and untrained models of the shapes of its recipes."""

from pathlib import Path

import numpy as np

from maskwright.core.spec import fingerprint
from maskwright.core.storage.files import read_json
from maskwright.core.types import IntArray
from maskwright.data.cleaning.store import CleanCorpus
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.recipes.catalog import resolve
from maskwright.training.runs.checkpoint import save_models
from maskwright.training.steps.model import build_model

UNTRAINED = "untrained"
_SAMPLE_BYTES = 4 << 20
_SEED = 0


def token_counts(tokenizer: Tokenizer, cleaned: CleanCorpus) -> IntArray:
    """Count each id in a sample of the training text, shape (V,)."""
    counts = np.zeros(tokenizer.special_tokens.vocab_size, dtype=np.int64)
    for ids, _ in tokenizer.encode_batch(list(cleaned.sample(_SAMPLE_BYTES, _SEED))):
        counts += np.bincount(ids, minlength=len(counts))
    return counts


def shape_of(run: Path) -> str:
    """Identify what the untrained model of a run depends on: its shape, heads, initialization and tokenizer."""
    recipe = resolve(str(run))
    parts = [recipe.family, recipe.encoder, recipe.generator, recipe.objectives, recipe.training.max_length]
    return fingerprint([*parts, read_json(run / "tokenizer.json")])


def save_untrained(run: Path, counts: IntArray, folder: Path) -> None:
    """Save the model that a run begins with, under another seed; `counts` are for biases of initial frequencies."""
    recipe, tokenizer = resolve(str(run)), Tokenizer.from_folder(run)
    model = build_model(recipe, tokenizer.special_tokens.vocab_size)
    model.initialize(_SEED, counts)
    save_models(folder, recipe, model, tokenizer.special_tokens)
    for target in (folder, folder / "generator") if recipe.generator else (folder,):
        tokenizer.save(target, max_length=recipe.training.max_length)
