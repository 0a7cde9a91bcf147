"""The table of similar words that a recipe's replacement draws from, and how often it has to do without."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from maskwright.core.randomness import Draws
from maskwright.data.shards.corpus import Corpus
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.words.similar_words import check_source, similar_words
from maskwright.pretext.masking.base import Masking
from maskwright.recipes.recipe import Recipe
from maskwright.training.reporting import Reporter
from maskwright.training.workload import Text

_SEQUENCES_MEASURED = 500
_DOCUMENTS_MEASURED = 5000


def check_similar_words(recipe: Recipe) -> None:
    """Raise DataError if the recipe wants similar words that cannot be had: before any long work."""
    if (spec := recipe.replacement.similar_words) is not None:
        check_source(spec)


def with_similar_words(
    text: Text, recipe: Recipe, corpus: Corpus, tokenizer: Tokenizer, *, seed: int, cache: Path | None, talk: Reporter
) -> Text:
    """Add the table to the text's vocabulary if the recipe's replacement asks for one, and say what it covers.

    Raises:
        DataError: If its source cannot be used, or gives no word of the corpus a similar one.
    """
    if (spec := recipe.replacement.similar_words) is None:
        return text
    made = similar_words(spec, corpus, tokenizer, cache=cache, progress=talk.stage)
    text = replace(text, vocabulary=replace(text.vocabulary, similar_words=made.table))
    talk.say("similar", f"{made.coverage.source}; {made.coverage.describe()}")
    outcomes = measured_outcomes(recipe, text, seed)
    if total := sum(outcomes.values()):
        spared = outcomes["kept for want of a similar word"]
        shares = ", ".join(f"{count / total:.1%} {name}" for name, count in outcomes.items())
        talk.say("similar", f"of {total:,} selected tokens, sampled: {shares}")
        if 2 * spared > total:
            talk.say(
                "warning",
                f"{spared / total:.0%} of the selected tokens stay as they are, since their words have no similar "
                "word: take another source (replacement.table.source), or let more words count "
                "(replacement.table.min_count, replacement.table.min_similarity)",
            )
    return text


def measured_outcomes(recipe: Recipe, text: Text, seed: int) -> Mapping[str, int]:
    """Count what becomes of the selected tokens in some sequences, laid out and masked by the rules of training.

    They come from documents at equal distances and are as long as in the first phase; of several maskings the first
    is taken. They are a sample, not the sequences that training will draw.
    """
    some = np.linspace(0, len(text.documents) - 1, min(len(text.documents), _DOCUMENTS_MEASURED)).astype(np.int64)
    documents = text.documents.pick(some)
    plan = recipe.format.plan(documents, recipe.training.phases[0].max_length, seed, 0)
    if not len(plan):
        return {}
    index = np.linspace(0, len(plan) - 1, min(len(plan), _SEQUENCES_MEASURED)).astype(np.int64)
    points = recipe.format.separator_points(text.documents)
    instances = recipe.format.lay_out(plan.rows(index), text.take, text.vocabulary.special_tokens, points)
    masking: Masking = recipe.masking.stages[0][1]
    draws = Draws(seed, np.zeros(len(index), dtype=np.int64), index)
    selection = masking.select(instances, draws, text.vocabulary.token_counts)
    return recipe.replacement.outcomes(instances, selection, draws, text.vocabulary)
