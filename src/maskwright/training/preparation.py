"""From corpus arguments to prepared text and the recipe that will really be trained."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from maskwright.core.errors import RecipeError
from maskwright.core.types import Documents
from maskwright.data.cleaning.store import CleanCorpus, clean_corpus
from maskwright.data.cleaning.text import Cleaning
from maskwright.data.pool import shared_pools
from maskwright.data.shards.corpus import Corpus
from maskwright.data.shards.tokenize import tokenize_corpus
from maskwright.data.sources.arguments import resolve_sources
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.vocabulary import train_tokenizer
from maskwright.data.words.annotator import check_words, words_fingerprint
from maskwright.data.words.collocations import describe_collocations
from maskwright.data.words.level_facts import describe_level
from maskwright.data.words.lexicon import has_lexicon_search
from maskwright.pretext.replacement.base import VocabularyFacts
from maskwright.recipes.recipe import Recipe
from maskwright.training.budget import Budget
from maskwright.training.device import Machine, Precision
from maskwright.training.empty_levels import empty_levels
from maskwright.training.existing import ExistingModel
from maskwright.training.expectation import expected_tokens, reached_flops
from maskwright.training.fit import Choice, fit_batch, fit_length, fit_phrases, fit_schedule, fit_vocabulary
from maskwright.training.origins import open_origins, same_teacher
from maskwright.training.reporting import Reporter
from maskwright.training.saving import check_savable
from maskwright.training.similar_words import check_similar_words, with_similar_words
from maskwright.training.starting import Start, habits_told
from maskwright.training.workload import Text, mean_length


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the user asked for, checked.

    Attributes:
        sources: Corpus arguments.
        recipe: As published, with the user's overrides.
        fixed: Dotted fields the user set.
        budget: What may be spent.
        seed: Keys every random choice.
        as_published: Fit nothing to the budget.
        tokenizer: A tokenizer folder to use instead of training one.
        init: A model to go on from; None to begin at random.
        extend_vocabulary: How many words of the corpus to add to that model's vocabulary, or a file of words.
        cleaning: How text is cleaned.
        workers: Processes for preparation; None for one a core.
        cache: Where prepared text is kept; None for the user's cache folder.
        precision: Of matrix products.
    """

    sources: tuple[str, ...]
    recipe: Recipe
    fixed: frozenset[str]
    budget: Budget
    seed: int
    as_published: bool
    tokenizer: Path | None
    init: str | None
    extend_vocabulary: int | str | None
    cleaning: Cleaning
    workers: int | None
    cache: Path | None
    precision: Precision = "auto"

    def to_json(self) -> dict[str, Any]:
        """Return what identifies a run: two requests with equal data are the same run."""
        return {
            "corpus": list(self.sources),
            "recipe": self.recipe.model_dump(mode="json"),
            "set": sorted(self.fixed),
            "budget": {self.budget.unit: self.budget.amount},
            "seed": self.seed,
            "as_published": self.as_published,
            "tokenizer": None if self.tokenizer is None else str(self.tokenizer),
            "init": self.init,
            "extend_vocabulary": self.extend_vocabulary,
            "cleaning": self.cleaning.model_dump(mode="json"),
            **({} if self.precision == "auto" else {"precision": self.precision}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What preparation gives.

    Attributes:
        recipe: What is trained.
        tokenizer: Its tokenizer.
        text: Prepared text.
        expected_tokens: Tokens the budget will buy, roughly.
        choices: What was fitted and why.
        card: The folder that holds data_card.json and data_card.md.
        fingerprint: Identifies the cleaned corpus.
        teacher: The recipe's teacher; None without one.
        start: The weights to begin with; None where all are drawn, or a checkpoint holds them.
    """

    recipe: Recipe
    tokenizer: Tokenizer
    text: Text
    expected_tokens: float
    choices: list[Choice] = field(default_factory=list)
    card: Path
    fingerprint: str
    teacher: ExistingModel | None = None
    start: Start | None = None


@shared_pools()
def prepare(request: Request, machine: Machine, talk: Reporter) -> Prepared:
    """Clean, choose the vocabulary, tokenize, and fit the recipe to the budget.

    What can be wrong at no cost (weights, the tokenizer folder, a list of words, what could not be saved) is looked at
    before any work.

    Raises:
        MaskwrightError: If something the user gave cannot be honoured.
    """
    recipe, choices = request.recipe, list[Choice]()
    check_similar_words(recipe)
    check_words(recipe.words)
    _common_weights([source.weight for source in resolve_sources(request.sources)])
    given = None if request.tokenizer is None else Tokenizer.from_folder(request.tokenizer)
    origins = open_origins(recipe, request.init, given, request.extend_vocabulary)
    if (tokenizer_given := origins.tokenizer or given) is not None:
        if "tokenizer.vocab_size" in request.fixed:
            raise RecipeError(
                f"{origins.bringer} brings its own vocabulary, but tokenizer.vocab_size was set too",
                todo="Leave one of them out.",
            )
        recipe = with_tokenizer(recipe, tokenizer_given, adopt=origins.tokenizer is not None)
    given = tokenizer_given
    published = recipe.encoder
    recipe = origins.fit(recipe, request.fixed)
    if told := habits_told(published, recipe.encoder):
        talk.say("as before", f"the encoder goes on as the model did: {told}")
    check_savable(recipe, recipe.tokenizer.pad if given is None else given.special_tokens.pad)
    request = replace(request, fixed=request.fixed | origins.kept)
    cleaned = _clean(request, talk)
    if origins.adds_words:
        origins = origins.extended(cleaned, request.seed, talk)
        given = origins.tokenizer
        assert given is not None
        recipe = with_tokenizer(recipe, given)
    # Only a budget of time asks how fast the machine is.
    reached = reached_flops(recipe.encoder, machine) if request.budget.unit == "seconds" else 0.0
    if not request.as_published:
        if has_lexicon_search():
            recipe, choices = fit_phrases(recipe, cleaned.scripts.get("Han", 0.0), request.fixed)
        # The length first: the vocabulary's size and the batch follow from how many tokens the budget buys.
        tokens = _tokens(request, recipe, reached, teacher=origins.teacher)
        recipe, more = fit_length(recipe, tokens, request.fixed)
        choices += more
    if given is not None:
        tokenizer = given
    else:
        if not request.as_published:
            recipe, more = fit_vocabulary(recipe, _tokens(request, recipe, reached), request.fixed)
            choices += more
        tokenizer = train_tokenizer(
            recipe.tokenizer, cleaned, seed=request.seed, cache=request.cache, progress=talk.stage
        )
    recipe = with_tokenizer(recipe, tokenizer)
    text = _tokenize(request, recipe, cleaned, tokenizer, talk)
    length = mean_length(recipe, text, request.seed)
    budget_tokens = _tokens(request, recipe, reached, length, teacher=origins.teacher)
    if not request.as_published:
        recipe, more = fit_schedule(recipe, budget_tokens, text.documents.num_tokens, length, request.fixed)
        choices += more
    return Prepared(
        recipe=recipe,
        tokenizer=tokenizer,
        text=text,
        expected_tokens=budget_tokens,
        choices=choices,
        card=cleaned.folder,
        fingerprint=cleaned.fingerprint,
        teacher=origins.teacher,
        start=origins.start(recipe),
    )


def _tokens(
    request: Request,
    recipe: Recipe,
    reached: float,
    mean_length: float | None = None,
    teacher: ExistingModel | None = None,
) -> float:
    """Return how many tokens the budget buys with a recipe as it stands."""
    length = mean_length or float(recipe.training.phases[0].max_length)
    if request.budget.unit == "steps":
        if request.as_published:
            return request.budget.amount * recipe.training.batch_sequences * length
        # The fitted step reads a quarter as many tokens as there are steps (see `fit.batch_tokens`), within bounds.
        return request.budget.amount * length * fit_batch(recipe, request.budget.amount**2 / 4, length, request.fixed)
    return expected_tokens(request.budget, recipe, reached, None if teacher is None else teacher.config)


def prepare_again(request: Request, recipe: Recipe, folder: Path, record: dict[str, Any], talk: Reporter) -> Prepared:
    """Prepare the text of a run that is resumed: its recipe and tokenizer are those in its folder.

    Raises:
        RecipeError: If the corpus, a word list or the teacher is no longer the same.
    """
    teacher = None if recipe.teacher is None else same_teacher(recipe, record["teacher"], folder)
    check_words(recipe.words)
    if record.get("words_fingerprint") != words_fingerprint(recipe.words):
        raise RecipeError(
            f"words, phrases or entities would not be the same as when the run in {folder} began: a word list has "
            "changed, or the segmenter is of another version",
            todo="Restore the old list or version to resume it, or choose another --out.",
        )
    cleaned = _clean(request, talk)
    if record["clean_fingerprint"] != cleaned.fingerprint:
        raise RecipeError(
            f"the corpus has changed since the run in {folder} began",
            todo="Restore the old files to resume it, or choose another --out.",
        )
    tokenizer = Tokenizer.from_folder(folder)
    text = _tokenize(request, recipe, cleaned, tokenizer, talk)
    if record.get("similar_words_fingerprint") != text.similar_words_fingerprint:
        raise RecipeError(
            f"the table of similar words is not the one that the run in {folder} began with: its source has changed",
            todo="Restore the old source to resume it, or choose another --out.",
        )
    return Prepared(
        recipe=recipe,
        tokenizer=tokenizer,
        text=text,
        expected_tokens=record["expected_tokens"],
        card=cleaned.folder,
        fingerprint=cleaned.fingerprint,
        teacher=teacher,
    )


def with_tokenizer(recipe: Recipe, tokenizer: Tokenizer, *, adopt: bool = False) -> Recipe:
    """Return the recipe with the vocabulary it will really have (a small corpus may give fewer entries).

    Args:
        recipe: What is trained.
        tokenizer: What it will read with.
        adopt: Whether the tokenizer may be of another kind, since it comes with a model.

    Raises:
        RecipeError: If the tokenizer is of another kind than the recipe's.
    """
    if adopt and tokenizer.kind != recipe.tokenizer.kind:
        recipe = recipe.replace(tokenizer=tokenizer.kind)
    if tokenizer.kind != recipe.tokenizer.kind:
        raise RecipeError(
            f"the tokenizer is a {tokenizer.kind}, recipe {recipe.name!r} wants a {recipe.tokenizer.kind}",
            todo="Choose a recipe of that kind, or another tokenizer folder.",
        )
    changes: dict[str, Any] = {"vocab_size": tokenizer.special_tokens.vocab_size}
    if "lowercase" in type(recipe.tokenizer).model_fields:
        changes["lowercase"] = tokenizer.lowercase
    return recipe.replace(tokenizer=recipe.tokenizer.replace(**changes))


def text_of(corpus: Corpus, tokenizer: Tokenizer, weights: Sequence[float | None]) -> Text:
    """Wrap a token corpus for training."""
    documents: Documents = corpus.documents
    return Text(
        documents=documents,
        sources=corpus.document_sources,
        weights=_common_weights(weights),
        document_ends=corpus.document_ends,
        take=corpus.take,
        vocabulary=VocabularyFacts(special_tokens=tokenizer.special_tokens, token_counts=corpus.token_counts),
        levels=corpus.levels,
    )


def _common_weights(weights: Sequence[float | None]) -> tuple[float, ...] | None:
    """Return the weights if they say anything; all sources carry one, or none does."""
    given = [weight for weight in weights if weight is not None]
    if given and len(given) < len(weights):
        raise RecipeError(
            f"{len(given)} of {len(weights)} corpus arguments carry a weight",
            todo="Give all of them a weight (path:0.7) or none.",
        )
    return tuple(given) if len(given) > 1 else None


def _clean(request: Request, talk: Reporter) -> CleanCorpus:
    begun = time.perf_counter()
    cleaned = clean_corpus(
        request.sources,
        cleaning=request.cleaning,
        cache=request.cache,
        workers=request.workers,
        progress=talk.stage,
        with_spans=request.recipe.words.needs_given_spans,
    )
    talk.say(
        "corpus",
        f"{', '.join(cleaned.source_names)}: {cleaned.num_bytes / 1e6:.1f} MB of clean text, "
        f"{cleaned.num_documents:,} documents, {cleaned.num_sentences:,} sentences{_took(begun)}",
    )
    return cleaned


def _tokenize(request: Request, recipe: Recipe, cleaned: CleanCorpus, tokenizer: Tokenizer, talk: Reporter) -> Text:
    begun = time.perf_counter()
    corpus = tokenize_corpus(
        cleaned,
        tokenizer,
        words=recipe.words,
        cache=request.cache,
        workers=request.workers,
        progress=talk.stage,
    )
    size = tokenizer.special_tokens.vocab_size
    unknown = int(corpus.token_counts[tokenizer.special_tokens.unk]) / max(1, corpus.num_tokens)
    talk.say(
        "tokens",
        f"{corpus.num_tokens / 1e6:.2f} M tokens of {size:,} {tokenizer.kind} entries, "
        f"{cleaned.num_characters / max(1, corpus.num_tokens):.2f} characters a token, "
        f"{unknown:.2%} unknown{_took(begun)}",
    )
    if corpus.collocations is not None:
        talk.say("words", describe_collocations(corpus.collocations))
    for level, facts in corpus.levels.items():
        talk.say("words", describe_level(level, facts))
    for warning in empty_levels(recipe, corpus.levels):
        talk.say("warning", warning)
    text = text_of(corpus, tokenizer, cleaned.source_weights)
    return with_similar_words(text, recipe, corpus, tokenizer, seed=request.seed, cache=request.cache, talk=talk)


def _took(begun: float) -> str:
    seconds = time.perf_counter() - begun
    return f" ({seconds:.0f} s)" if seconds >= 1 else ""
