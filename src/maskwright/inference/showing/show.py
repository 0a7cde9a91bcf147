"""Run the pretext task on a given text, exactly as training would in a given epoch."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.core.errors import DataError
from maskwright.core.randomness import Draws
from maskwright.core.types import Documents, IntArray, TakenTokens
from maskwright.inference.showing.sequences import ShownSequence, shown_sequences
from maskwright.inference.showing.tokenizer import small_tokenizer
from maskwright.pretext.corrupt import corrupt
from maskwright.pretext.replacement import VocabularyFacts
from maskwright.recipes.catalog import resolve
from maskwright.recipes.recipe import Recipe
from maskwright.text.cleaning import Cleaning, clean_document
from maskwright.text.progress import Progress
from maskwright.text.sentences import split_paragraph
from maskwright.text.tokenizer import Tokenizer

_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """What a recipe does to a text.

    Attributes:
        recipe: The recipe.
        tokenizer: What cut the text into tokens, in words.
        seed: The run's seed.
        epoch: The epoch, from 0.
        refresh: Which drawing of layouts and masks that epoch uses.
        max_length: Tokens a sequence may have.
        sequences: The first sequences that the text makes.
        num_sequences: How many it makes in all.
        notes: What a reader should know to understand what is shown.
    """

    recipe: Recipe
    tokenizer: str
    seed: int
    epoch: int
    refresh: int
    max_length: int
    sequences: tuple[ShownSequence, ...]
    num_sequences: int
    notes: tuple[str, ...]

    def pair_words(self, label: int) -> str:
        """Say in words what a pair's label means; "" where there is none."""
        if label < 0:
            return ""
        in_order, otherwise = (
            ("the two texts in order", "the two texts swapped")
            if "order_label" in self.recipe.format.provides
            else ("second text: really the next", "second text: a random one")
        )
        return f"{otherwise if label else in_order} (label {label})"

    def to_json(self) -> dict[str, Any]:
        """Return plain data, for programs."""
        return {
            "recipe": self.recipe.name,
            "tokenizer": self.tokenizer,
            "seed": self.seed,
            "epoch": self.epoch,
            "refresh": self.refresh,
            "max_length": self.max_length,
            "num_sequences": self.num_sequences,
            "notes": list(self.notes),
            "sequences": [asdict(sequence) for sequence in self.sequences],
        }


def show(
    recipe: str | Recipe,
    text: str,
    *,
    tokenizer: Path | str | None = None,
    seed: int = 0,
    epoch: int = 0,
    set: Sequence[str] = (),
    max_sequences: int = 10,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Showing:
    """Lay out a text, select tokens and replace them as training does in one epoch.

    Args:
        recipe: A recipe's name, its JSON file, or the recipe itself.
        text: Running text; blank lines separate documents.
        tokenizer: A folder with a tokenizer (a run's folder has one). None learns a small one from the
            docstrings of the Python installation and from the text, so that all its characters are known.
        seed: The run's seed.
        epoch: Which epoch, from 0.
        set: Overrides of the recipe, "field.path=value", if it is given by name.
        max_sequences: Most sequences shown.
        cache: Where the small tokenizer is kept; None for the user's cache folder.
        progress: Called while the small tokenizer is trained.

    Raises:
        RecipeError: If the recipe is unknown or an override does not fit.
        DataError: If the text is empty or the tokenizer cannot be read.

    Example:
        >>> show("bert/tiny", "The cat sat. It slept.").sequences[0].tokens[0].seen
        '[CLS]'
    """
    chosen = recipe if isinstance(recipe, Recipe) else resolve(recipe, set)
    documents = sentences_of_documents(text)
    if not documents:
        raise DataError("the text to show is empty", todo="Give a sentence or more.")
    notes = []
    if tokenizer is None:
        used = small_tokenizer(chosen.tokenizer, text, cache=cache, progress=progress)
        words = f"a small one of {used.special_tokens.vocab_size:,} entries, learnt from docstrings and this text"
    else:
        used = Tokenizer.from_folder(tokenizer)
        words = f"{tokenizer}, {used.special_tokens.vocab_size:,} entries"
        if used.kind != chosen.tokenizer.kind:
            notes.append(f"the tokenizer is of kind {used.kind}, the recipe's of {chosen.tokenizer.kind}")
    if "next_sentence_label" in chosen.format.provides and len(documents) == 1:
        notes.append('of a single document even "random" second texts come from it; blank lines separate documents')
    refresh = chosen.masks.refresh(epoch)
    sequences, total = _sequences(chosen, documents, used, seed, refresh, max_sequences)
    return Showing(
        recipe=chosen,
        tokenizer=words,
        seed=seed,
        epoch=epoch,
        refresh=refresh,
        max_length=chosen.training.phases[0].max_length,
        sequences=sequences,
        num_sequences=total,
        notes=tuple(notes),
    )


def sentences_of_documents(text: str) -> list[list[str]]:
    """Split a text at blank lines into documents and these into sentences, as a corpus is prepared.

    A sentence carries the white space before it, also where a paragraph begins.
    """
    cleaning = Cleaning()
    documents = []
    for document in _BLANK_LINES.split(text.replace("\r\n", "\n")):
        sentences: list[str] = []
        for paragraph in clean_document(document, cleaning):
            split = split_paragraph(paragraph, max_characters=cleaning.max_sentence_characters)
            if sentences and split:
                split[0] = " " + split[0]
            sentences.extend(split)
        if sentences:
            documents.append(sentences)
    return documents


def _sequences(
    recipe: Recipe, texts: list[list[str]], tokenizer: Tokenizer, seed: int, refresh: int, most: int
) -> tuple[tuple[ShownSequence, ...], int]:
    documents, ids, word_starts = _encoded(texts, tokenizer)

    def take(starts: IntArray, ends: IntArray) -> TakenTokens:
        lengths = ends - starts
        offsets = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        places = np.repeat(starts, lengths) + offsets
        return TakenTokens(ids[places], word_starts[places])

    special = tokenizer.special_tokens
    plan = recipe.format.plan(documents, recipe.training.phases[0].max_length, seed, refresh)
    number = np.arange(min(most, len(plan)))
    instances = recipe.format.lay_out(plan.rows(number), take, special, recipe.format.separator_points(documents))
    vocabulary = VocabularyFacts(special_tokens=special, token_counts=np.bincount(ids, minlength=special.vocab_size))
    draws = Draws(seed, np.full(len(number), refresh), number)
    examples = corrupt(instances, recipe.masking, recipe.replacement, draws, vocabulary)
    return tuple(shown_sequences(examples, tokenizer)), len(plan)


def _encoded(texts: list[list[str]], tokenizer: Tokenizer) -> tuple[Documents, IntArray, IntArray]:
    """Encode sentences to one stream; sentences and documents without tokens are left out."""
    encoded = [[pair for pair in tokenizer.encode_batch(sentences) if len(pair[0])] for sentences in texts]
    kept = [document for document in encoded if document]
    if not kept:
        raise DataError("the text to show holds nothing that the tokenizer knows", todo="Give other text.")
    pairs = [pair for document in kept for pair in document]
    last = np.cumsum([len(document) for document in kept])
    documents = Documents(
        sentence_ends=np.cumsum([len(ids) for ids, _ in pairs]),
        first=np.concatenate([[0], last[:-1]]),
        last=last,
    )
    return (
        documents,
        np.concatenate([ids for ids, _ in pairs]),
        np.concatenate([starts for _, starts in pairs]),
    )
