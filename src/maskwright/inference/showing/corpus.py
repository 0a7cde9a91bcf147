"""A corpus to show a text with: the vocabulary and the similar words are learnt from it, as training does."""

from collections.abc import Sequence
from pathlib import Path

from maskwright.core.similar_words import SimilarWordsSpec
from maskwright.data.cleaning.store import clean_corpus
from maskwright.data.progress import Progress
from maskwright.data.shards.corpus import Corpus
from maskwright.data.shards.tokenize import tokenize_corpus
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.vocabulary import train_tokenizer
from maskwright.data.words.similar_words import KeptTable, TokenSample, similar_words, table_of
from maskwright.recipes.default_cleaning import default_cleaning
from maskwright.recipes.recipe import Recipe


def prepared_corpus(
    recipe: Recipe,
    corpus: Sequence[str],
    tokenizer: Path | str | None,
    *,
    seed: int,
    cache: Path | None,
    progress: Progress | None,
) -> Corpus:
    """Clean and tokenize a corpus as `pretrain` does, or open what it has kept.

    Args:
        recipe: What counts as a word, and the kind and size of the vocabulary.
        corpus: Corpus arguments.
        tokenizer: A folder with a tokenizer; None learns one from the corpus.
        seed: Which sample of the corpus a vocabulary is learnt from.
        cache: Where prepared text is kept; None for the user's cache folder.
        progress: Called while it is made.

    Raises:
        MaskwrightError: If the corpus or the tokenizer cannot be used.
    """
    cleaned = clean_corpus(
        corpus,
        cleaning=default_cleaning(recipe),
        cache=cache,
        progress=progress,
        with_spans=recipe.words.needs_given_spans,
    )
    used = (
        train_tokenizer(recipe.tokenizer, cleaned, seed=seed, cache=cache, progress=progress)
        if tokenizer is None
        else Tokenizer.from_folder(tokenizer)
    )
    return tokenize_corpus(cleaned, used, words=recipe.words, cache=cache, progress=progress)


def similar_words_for(
    spec: SimilarWordsSpec,
    text: TokenSample,
    tokenizer: Tokenizer,
    corpus: Corpus | None,
    *,
    cache: Path | None,
    progress: Progress | None,
) -> tuple[KeptTable, str]:
    """Return the table that a text is shown with, and what a reader should know of it.

    Without a corpus the text shown is all there is: too little to learn from, enough for a thesaurus.

    Raises:
        DataError: If the source cannot be used.
    """
    if corpus is not None:
        made = similar_words(spec, corpus, tokenizer, cache=cache, progress=progress)
        return made, f"similar words: {made.coverage.source}; {made.coverage.describe()}"
    made = table_of(spec, text, tokenizer, progress=progress)
    if spec.source == "corpus":
        return made, (
            "similar words are learnt from a corpus, and this text alone teaches "
            + ("none" if not len(made.table) else "little")
            + ": name one with --corpus, or a thesaurus with --set replacement.table.source=FILE"
        )
    covered = f"{made.coverage.covered:,} of the {made.coverage.words:,} words of this text have one"
    return made, f"similar words: {made.coverage.source}; {covered}"
