"""Every recipe is fitted to three budgets as recorded in `fitted_values.csv`, to one that JSON holds.

After an intended change: `python tests/fitting/test_fitted_values.py > fitted_values.csv`, and move the file here.
"""

import csv
import sys
from functools import cache
from pathlib import Path

import pytest

from maskwright.fitting.budget import Budget
from maskwright.fitting.resolve import CorpusStatistics, resolve
from maskwright.recipes.catalog import get, names
from maskwright.recipes.recipe import Recipe

BUDGETS = (1e6, 3e7, 1e9)
CORPUS_TOKENS, FILLED = 5e7, 0.9
"""Tokens of the corpus, and the mean length of sequences as a share of the maximum."""


def fitted(name: str, tokens: float) -> dict[str, str]:
    budget = Budget("tokens", tokens)
    before = resolve(get(name), budget, CorpusStatistics(chinese_share=0.0)).recipe
    lengths = tuple(FILLED * phase.max_length for phase in before.training.phases)
    corpus = CorpusStatistics(chinese_share=0.0, tokens=CORPUS_TOKENS, mean_lengths=lengths)
    recipe = resolve(before, budget, corpus).recipe
    assert Recipe.model_validate(recipe.model_dump(mode="json")) == recipe
    training, encoder = recipe.training, recipe.encoder
    return {
        "recipe": name,
        "tokens": f"{tokens:g}",
        "vocabulary": str(recipe.tokenizer.vocab_size),
        "lengths": " ".join(f"{phase.share:g}x{phase.max_length}" for phase in training.phases),
        "batch": str(training.batch_sequences),
        "steps": str(training.steps),
        "warmup": str(training.warmup_steps),
        "rate": f"{training.learning_rate:g}",
        "schedule": training.schedule,
        "decay": f"{training.decay_share:g}",
        "optimizer": training.optimizer.kind,
        "beta2": f"{training.optimizer.betas[1]:g}",
        "clip": f"{training.clip_norm:g}",
        "std": f"{encoder.initializer_range:g}",
        "attention": encoder.initial_attention,
        "embeddings": encoder.initial_embeddings,
        "dropout": f"{encoder.hidden_dropout:g} {encoder.attention_dropout:g}",
        "biases": " ".join(getattr(each, "initial_bias", "-") for each in recipe.objectives),
        "phrases": " ".join(recipe.words.phrases),
    }


@cache
def recorded() -> list[dict[str, str]]:
    with open(Path(__file__).with_name("fitted_values.csv"), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("tokens", BUDGETS)
def test_every_recipe_is_fitted_as_recorded(tokens: float) -> None:
    rows = [row for row in recorded() if row["tokens"] == f"{tokens:g}"]
    assert len(rows) > 90
    assert [fitted(row["recipe"], tokens) for row in rows] == rows


if __name__ == "__main__":
    table = [fitted(name, tokens) for name in names() for tokens in BUDGETS]
    writer = csv.DictWriter(sys.stdout, table[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
