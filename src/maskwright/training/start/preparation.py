"""Preparation: from corpus arguments to tokenized text and the resolved recipe."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.checkpoints.checkpoint import Checkpoint
from maskwright.checkpoints.families import family_named
from maskwright.checkpoints.refusals import position_offset
from maskwright.core.errors import RecipeError
from maskwright.core.randomness import RandomNumbers
from maskwright.core.storage.files import cache_folder
from maskwright.core.text.amounts import pluralize, short_count, size_in_bytes
from maskwright.core.types import Documents
from maskwright.data.cleaning.data_card import remarks
from maskwright.data.cleaning.store import CleanCorpus, clean_corpus
from maskwright.data.cleaning.text import Cleaning
from maskwright.data.prepared import PreparedText, find_prepared
from maskwright.data.scripts import share_needing_marks
from maskwright.data.shards.corpus import TOKENIZER
from maskwright.data.shards.tokenize import tokenize_corpus
from maskwright.data.similar_words import KeptTable, check_source, few_words_warning, similar_words
from maskwright.data.sources.arguments import Source, resolve_sources
from maskwright.data.tokenizers.tokenizer import MANY_UNKNOWN, Tokenizer
from maskwright.data.tokenizers.training import MIN_SHARE_NEEDING_MARKS, train_tokenizer
from maskwright.data.words.annotator import check_words, words_fingerprint
from maskwright.data.words.collocations import describe_collocations
from maskwright.data.words.lexicon import has_lexicon_search
from maskwright.data.words.segmenters import describe_traditional
from maskwright.data.words.span_facts import describe_spans
from maskwright.fitting.budget import Budget
from maskwright.fitting.resolve import FULL_LENGTH, CorpusStatistics, Speed, resolve
from maskwright.fitting.rules import Choice
from maskwright.pretext.formats.base import assemble
from maskwright.pretext.objectives.pair import PairObjective
from maskwright.pretext.replacement.base import VocabularyFacts, corrupt
from maskwright.recipes.recipe import Recipe
from maskwright.reporting.reporter import Reporter
from maskwright.training.ranks.device import Machine, Precision
from maskwright.training.ranks.distributed import single_process, world_size
from maskwright.training.ranks.gradients import GradientPrecision
from maskwright.training.runs.checkpoint import check_savable
from maskwright.training.start.initialization import (
    InitialWeights,
    SourceModels,
    describe_changes,
    open_source_models,
    open_teacher,
)
from maskwright.training.start.speed import measure_speed
from maskwright.training.steps.text import Text, mean_lengths

_DOCUMENTS_MEASURED, _SEQUENCES_MEASURED = 5000, 500
_BLOCKS_READ, _DOCUMENTS_READ, _SENTENCES_READ = 8, 100, 20
_FEW_SPANS = 0.03
"""Below this share of the tokens in spans of a kind, a stage of masking that selects them is warned of."""
_FEW_PAIRS = 0.05
"""Below this share of documents with two sentences or more, objectives about pairs of texts are warned of. A choice,
not measured."""
_CHARACTERS_PER_TOKEN = 4
"""Before the text is tokenized; of English words and a vocabulary of 8,192."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The validated arguments of a run (see `pretrain`): the published recipe with the fields that the user fixed.

    `reset` are published fields that these leave without effect.
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
    gradient_precision: GradientPrecision = "fp32"
    reset: tuple[Choice, ...] = ()
    held_out: tuple[str, ...] = ()

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
            **({} if self.gradient_precision == "fp32" else {"gradient_precision": self.gradient_precision}),
            **({"held_out": list(self.held_out)} if self.held_out else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """The result of preparation. There is no `start` if initial weights are random or in a checkpoint."""

    recipe: Recipe
    tokenizer: Tokenizer
    text: Text
    expected_tokens: float
    choices: list[Choice] = field(default_factory=list)
    cleaned: CleanCorpus
    held_out: CleanCorpus | None = None
    teacher: Checkpoint | None = None
    start: InitialWeights | None = None


def prepare(request: Request, machine: Machine, reporter: Reporter) -> PreparedRun:
    """Clean, choose the vocabulary, tokenize, and fit the recipe to the budget.

    Cheap checks (weights, tokenizer, word lists, whether the model can be saved) come before any work. Raises
    MaskwrightError if an argument is invalid.
    """
    recipe = request.recipe
    if (similar := recipe.replacement.similar_words) is not None:
        check_source(similar)
    check_words(recipe.words)
    prepared = find_prepared(request.sources, request.cache or cache_folder(), reporter.stage)
    tokenizer = None if request.tokenizer is None else Tokenizer.from_folder(request.tokenizer)
    sized = "tokenizer.vocab_size" in request.fixed  # Then the vocabulary is trained; the same if the size is.
    if tokenizer is None and prepared and not sized and request.init is None and recipe.teacher is None:
        tokenizer = _tokenizer_of(prepared, request, reporter)
    source_models = open_source_models(recipe, request.init, tokenizer, request.extend_vocabulary)
    tokenizer = source_models.tokenizer or tokenizer
    recipe = _fit_to_source_models(request, source_models, tokenizer, reporter)
    limits: tuple[Choice, ...] = ()
    if not request.as_published:
        recipe, limits = source_models.limit_rate(recipe, request.fixed)
    # After the other checks, since URLs are fetched.
    sources = () if prepared else resolve_sources(request.sources, cache=request.cache, progress=reporter.stage)
    _common_weights([source.weight for source in sources])
    if seen := _read_twice(sources, request, reporter):
        reporter.message(
            "warning",
            f"{', '.join(seen)}: given as held-out text, but also part of the training text, so the held-out loss does "
            "not say how well the model predicts other text. Leave --held-out out to keep a share of the corpus apart.",
        )
    cleaned, held_out = _clean(request, reporter), _clean_held_out(request, reporter)
    if source_models.new_words is not None:
        source_models = source_models.extended(cleaned, request.seed, reporter)
        tokenizer = source_models.tokenizer
        assert tokenizer is not None
        recipe = with_tokenizer(recipe, tokenizer)
    fixed = request.fixed | source_models.not_fitted
    if tokenizer is not None:
        fixed |= {"tokenizer.vocab_size"}
    if not has_lexicon_search():
        fixed |= {"words.phrases"}
    fit = partial(
        resolve,
        budget=request.budget,
        fixed=fixed,
        speed=_speed(request, recipe, machine, cleaned, fixed, reporter),
        teacher=None if source_models.teacher is None else source_models.teacher.config,
        teacher_length=FULL_LENGTH if source_models.teacher is None else source_models.teacher.max_length,
        as_published=request.as_published,
    )
    chinese_share = cleaned.scripts.get("Han", 0.0)
    before = fit(recipe, corpus=CorpusStatistics(chinese_share=chinese_share))
    tokenizer = tokenizer or train_tokenizer(
        before.recipe.tokenizer, cleaned, seed=request.seed, cache=request.cache, progress=reporter.stage
    )
    recipe = with_tokenizer(before.recipe, tokenizer)
    text = _tokenize(request, recipe, cleaned, held_out, tokenizer, reporter)
    statistics = CorpusStatistics(
        chinese_share=chinese_share,
        tokens=text.documents.num_tokens,
        mean_lengths=mean_lengths(recipe, text, request.seed),
    )
    resolved = fit(recipe, corpus=statistics)
    return PreparedRun(
        recipe=resolved.recipe,
        tokenizer=tokenizer,
        text=text,
        expected_tokens=resolved.expected_tokens,
        choices=[*request.reset, *limits, *before.choices, *resolved.choices],
        cleaned=cleaned,
        held_out=held_out,
        teacher=source_models.teacher,
        start=source_models.start(resolved.recipe),
    )


def _fit_to_source_models(
    request: Request, source_models: SourceModels, tokenizer: Tokenizer | None, reporter: Reporter
) -> Recipe:
    """Return the recipe with the tokenizer, positions and shape that its initial model, teacher or tokenizer need.

    Raises MaskwrightError if that cannot be saved, or a field that was set contradicts it.
    """
    recipe = request.recipe
    if tokenizer is not None:
        if "tokenizer.vocab_size" in request.fixed:
            source = "--init" if source_models.init else "the teacher" if source_models.teacher else "--tokenizer"
            raise RecipeError(
                f"{source} has its own vocabulary, but tokenizer.vocab_size was set too", hint="Leave one of them out."
            )
        recipe = with_tokenizer(recipe, tokenizer, adopt=source_models.tokenizer is not None)
    pad = recipe.tokenizer.pad if tokenizer is None else tokenizer.special_tokens.pad
    offset = position_offset(family_named(recipe.family), pad)
    if offset != recipe.encoder.position_offset and "encoder.position_offset" not in request.fixed:
        # RoBERTa's positions start behind the padding id, which another kind of tokenizer has elsewhere.
        reporter.message(
            "encoder", f"position_offset {offset} (recipe: {recipe.encoder.position_offset}): padding is {pad}"
        )
        recipe = recipe.replace(encoder=recipe.encoder.replace(position_offset=offset))
    published = recipe.encoder
    recipe = source_models.fit(recipe, request.fixed)
    if changes := describe_changes(published, recipe.encoder):
        reporter.message("encoder", f"as in the initial model: {changes}")
    check_savable(recipe, pad)
    return recipe


def _speed(
    request: Request, recipe: Recipe, machine: Machine, cleaned: CleanCorpus, fixed: frozenset[str], reporter: Reporter
) -> Speed:
    """Return the measured speed of all processes; only a budget of time depends on it."""
    if request.budget.unit != "seconds":
        return Speed()
    reporter.message("speed", f"measuring how fast this machine trains {recipe.name}, to plan {request.budget}")
    with single_process():
        speed = measure_speed(
            recipe,
            request.budget,
            machine,
            corpus_tokens=cleaned.num_characters / _CHARACTERS_PER_TOKEN,
            fixed=fixed,
            as_published=request.as_published,
        )
    if speed.is_busy:
        reporter.message("load", "other processes use the CPU; the plan assumes that they continue")
    processes = world_size()
    return replace(speed, flops=processes * speed.flops, full_step_tokens=processes * speed.full_step_tokens)


def restore_prepared(
    request: Request, recipe: Recipe, folder: Path, record: dict[str, Any], reporter: Reporter
) -> PreparedRun:
    """Prepare the text of a run that resumes, with the recipe and tokenizer in its directory.

    Raises RecipeError if the corpus, a word list or the teacher has changed.
    """

    def check(what: str, recorded: str | None, current: str | None) -> None:
        if recorded != current:
            raise RecipeError(
                f"{what} has changed since the run in {folder} began",
                hint="Restore it to resume, or choose another --out.",
            )

    teacher = None
    if recipe.teacher is not None:
        teacher = open_teacher(recipe)
        check(f"the teacher {teacher.name}", record["teacher"]["fingerprint"], teacher.fingerprint)
    check_words(recipe.words)
    words = words_fingerprint(recipe.words)
    check("a word list, or the version of the segmenter,", record.get("words_fingerprint"), words)
    cleaned, held_out = _clean(request, reporter), _clean_held_out(request, reporter)
    check("the corpus", record["clean_fingerprint"], cleaned.fingerprint)
    held_out_fingerprint = None if held_out is None else held_out.fingerprint
    check("the held-out text", record.get("held_out_fingerprint"), held_out_fingerprint)
    tokenizer = Tokenizer.from_folder(folder)
    text = _tokenize(request, recipe, cleaned, held_out, tokenizer, reporter)
    similar = text.similar_words_fingerprint
    check("the source of similar words", record.get("similar_words_fingerprint"), similar)
    return PreparedRun(
        recipe=recipe,
        tokenizer=tokenizer,
        text=text,
        expected_tokens=record["expected_tokens"],
        cleaned=cleaned,
        held_out=held_out,
        teacher=teacher,
    )


def _tokenizer_of(prepared: PreparedText, request: Request, reporter: Reporter) -> Tokenizer | None:
    """Return the tokenizer of prepared text; None, with a message, if the recipe or the user wants another."""
    tokenizer = Tokenizer.from_folder(prepared.tokens / TOKENIZER)
    wanted = request.recipe.tokenizer.model_dump(mode="json")
    settings = {"kind": tokenizer.kind} if prepared.tokenizer is None else prepared.tokenizer
    same_kind = settings["kind"] == wanted["kind"]  # Kinds have other settings.
    compared = [name for name in settings if name != "vocab_size"] if same_kind else ["kind"]
    differing = [name for name in compared if settings[name] != wanted[name]]
    if not differing:
        size = f"{tokenizer.special_tokens.vocab_size:,}"
        reporter.message("tokenizer", f"that of the prepared text, {tokenizer.kind}, {size} entries")
        return tokenizer
    reporter.message(
        "tokenizer",
        "not that of the prepared text, which is tokenized again: "
        + ", ".join(f"tokenizer.{name} is {wanted[name]}, there {settings[name]}" for name in differing),
    )
    return None


def with_tokenizer(recipe: Recipe, tokenizer: Tokenizer, *, adopt: bool = False) -> Recipe:
    """Return the recipe with the actual vocabulary size (a small corpus may give fewer entries) and casing.

    Raises RecipeError if the tokenizer is of another kind than the recipe's, unless it comes with a model (`adopt`).
    """
    if adopt and tokenizer.kind != recipe.tokenizer.kind:
        recipe = recipe.replace(tokenizer=tokenizer.kind)
    if tokenizer.kind != recipe.tokenizer.kind:
        raise RecipeError(
            f"the tokenizer is a {tokenizer.kind}, recipe {recipe.name!r} wants a {recipe.tokenizer.kind}",
            hint=f"Add `--set tokenizer.kind={tokenizer.kind}`, or give another tokenizer folder.",
        )
    changes: dict[str, Any] = {"vocab_size": tokenizer.special_tokens.vocab_size}
    if "lowercase" in type(recipe.tokenizer).model_fields:
        changes["lowercase"] = tokenizer.lowercase
    return recipe.replace(tokenizer=recipe.tokenizer.replace(**changes))


def _common_weights(weights: Sequence[float | None]) -> tuple[float, ...] | None:
    """Return the weights of several sources; either all sources have one, or none."""
    specified = [weight for weight in weights if weight is not None]
    if specified and len(specified) < len(weights):
        raise RecipeError(
            f"{len(specified)} of {len(weights)} corpus arguments have a weight",
            hint="Give all of them a weight (path:0.7) or none.",
        )
    return tuple(specified) if len(specified) > 1 else None


def _clean(request: Request, reporter: Reporter) -> CleanCorpus:
    begun = time.perf_counter()
    cleaned = clean_corpus(
        request.sources,
        cleaning=request.cleaning,
        cache=request.cache,
        workers=request.workers,
        progress=reporter.stage,
    )
    dropped = cleaned.card["total"]["dropped"]
    short, leaked = dropped["short documents"]["documents"], dropped["paragraphs with evaluation text"]["paragraphs"]
    reporter.message(
        "corpus",
        f"{', '.join(cleaned.source_names)}: {size_in_bytes(cleaned.num_bytes)} of clean text, "
        f"{pluralize(cleaned.num_documents, 'document')}, {pluralize(cleaned.num_sentences, 'sentence')}"
        + (f", {pluralize(short, 'short document')} left out" if short else "")
        + (f", {pluralize(leaked, 'paragraph')} with evaluation text left out" if request.cleaning.exclude else "")
        + _took(begun),
    )
    for remark in remarks(cleaned.card):
        reporter.message("corpus", remark)
    return cleaned


def _read_twice(sources: Sequence[Source], request: Request, reporter: Reporter) -> list[str]:
    """Return the held-out files that are among those of the sources."""
    if not sources or not request.held_out:
        return []
    trained = {file.resolve() for source in sources for file in source.files}
    held_out = resolve_sources(request.held_out, cache=request.cache, progress=reporter.stage)
    return [str(file) for source in held_out for file in source.files if file.resolve() in trained]


def _clean_held_out(request: Request, reporter: Reporter) -> CleanCorpus | None:
    """Clean the held-out text that was given, but leave nothing out of it."""
    if not request.held_out:
        return None
    cleaned = clean_corpus(
        request.held_out,
        cleaning=request.cleaning.replace(deduplicate="none", near_duplicates=False, exclude=(), min_document_bytes=1),
        cache=request.cache,
        workers=request.workers,
        progress=reporter.stage,
    )
    amount = f"{size_in_bytes(cleaned.num_bytes)} of clean text, {pluralize(cleaned.num_documents, 'document')}"
    reporter.message("held out", f"{', '.join(cleaned.source_names)}: {amount}")
    for remark in remarks(cleaned.card):
        reporter.message("held out", remark)
    return cleaned


def _tokenize(
    request: Request,
    recipe: Recipe,
    cleaned: CleanCorpus,
    held_out: CleanCorpus | None,
    tokenizer: Tokenizer,
    reporter: Reporter,
) -> Text:
    begun = time.perf_counter()
    corpus = tokenize_corpus(
        cleaned, tokenizer, words=recipe.words, cache=request.cache, workers=request.workers, progress=reporter.stage
    )
    size = tokenizer.special_tokens.vocab_size
    unknown = int(corpus.token_counts[tokenizer.special_tokens.unk]) / max(1, corpus.num_tokens)
    reporter.message(
        "tokens",
        f"{short_count(corpus.num_tokens)} tokens, {tokenizer.kind} vocabulary of {size:,} entries, "
        f"{cleaned.num_characters / max(1, corpus.num_tokens):.2f} characters per token, "
        f"{unknown:.2%} unknown"
        + (", combining marks kept" if tokenizer.lowercase and not tokenizer.drops_marks else "")
        + _took(begun),
    )
    if unknown > MANY_UNKNOWN:
        reporter.message(
            "warning",
            f"{unknown:.0%} of the text's tokens are unknown to the tokenizer; train one (leave out --tokenizer or "
            "--init), or name a file of words to add to that of --init (--extend-vocabulary WORDS.txt)",
        )
    if tokenizer.drops_marks and (damaged := share_needing_marks(_some_sentences(cleaned))) >= MIN_SHARE_NEEDING_MARKS:
        reporter.message(
            "warning",
            f"the tokenizer drops combining marks, and with them vowels or other parts of {damaged:.0%} of the text's "
            "characters; train a tokenizer (leave out --tokenizer or --init), or choose a model that keeps them",
        )
    if corpus.collocations is not None:
        reporter.message("words", describe_collocations(corpus.collocations))
    if note := describe_traditional(recipe.words, _some_sentences(cleaned)):
        reporter.message("words", note)
    for kind, facts in corpus.span_facts.items():
        reporter.message("words", describe_spans(kind, facts))
    for warning in span_warnings(recipe, corpus.span_facts):
        reporter.message("warning", warning)
    vocabulary = VocabularyFacts(special_tokens=tokenizer.special_tokens, token_counts=corpus.token_counts)
    made = None
    if (spec := recipe.replacement.similar_words) is not None:
        made = similar_words(spec, corpus, tokenizer, cache=request.cache, progress=reporter.stage)
        vocabulary = replace(vocabulary, similar_words=made.table)
    text = Text.of(corpus, vocabulary, _common_weights(cleaned.source_weights))
    for warning in pair_warnings(recipe, text.documents):
        reporter.message("warning", warning)
    if held_out is not None:
        words = recipe.words
        if (file := corpus.collocations) is not None:  # Those of the training text, if it has any.
            found = [str(file)] if file.stat().st_size else []
            phrases = (found if each == "collocations" else [each] for each in words.phrases)
            words = words.replace(phrases=list(chain.from_iterable(phrases)))
        measured = tokenize_corpus(
            held_out, tokenizer, words=words, cache=request.cache, workers=request.workers, progress=reporter.stage
        )
        text = replace(text, held_out=Text.of(measured, vocabulary))
    if made is not None:
        _report_similar_words(text, request, recipe, made, reporter)
    return text


def _some_sentences(cleaned: CleanCorpus) -> Iterator[str]:
    """Yield sentences from the beginnings of evenly spaced blocks."""
    count = len(cleaned.blocks)
    for block in np.unique(np.linspace(0, count - 1, min(count, _BLOCKS_READ)).astype(np.int64)).tolist():
        for document in cleaned.sentences(block)[:_DOCUMENTS_READ]:
            yield from document[:_SENTENCES_READ]


def _took(begun: float) -> str:
    seconds = time.perf_counter() - begun
    return f" ({seconds:.0f} s)" if seconds >= 1 else ""


def span_warnings(recipe: Recipe, facts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a warning for each kind of spans that the masking selects and that the text has none or few of."""
    for kind in sorted(recipe.masking.span_kinds):
        covered = facts[kind]["share_of_tokens"]
        if covered >= _FEW_SPANS:
            continue
        share = sum(share for share, masking in recipe.masking.stages if kind in masking.span_kinds)
        remedy = "use the corpus's collocations, --set words.phrases=[collocations] (any language; extra: words)"
        if kind == "entity":
            remedy = "give a list of entities, --set words.entities=[names.txt]"
        elif "collocations" in recipe.words.phrases:
            remedy = "give a list of phrases, --set words.phrases=[phrases.txt] (too little text for collocations)"
        problem, where = f"no {kind} of two or more words was found", "instead"
        if facts[kind]["units"]:
            problem, where = f"only {covered:.1%} of the tokens are in {kind} spans of two or more words", "elsewhere"
        yield (
            f"{problem}; masking {recipe.masking.kind!r} masks single words {where}, in {share:.0%} of training; "
            f"{remedy}"
        )


def pair_warnings(recipe: Recipe, documents: Documents) -> Iterator[str]:
    """Yield a warning if an objective needs consecutive sentences and few documents have two."""
    kinds = [objective.kind for objective in recipe.objectives if isinstance(objective, PairObjective)]
    others = [objective.kind for objective in recipe.objectives if objective.kind not in kinds]
    if not kinds:
        return
    several = int(np.count_nonzero(documents.last - documents.first > 1))
    if several < _FEW_PAIRS * len(documents):
        yield (
            f"only {several:,} of {pluralize(len(documents), 'document')} have two sentences or more, which objective "
            f"{kinds[0]!r} needs for pairs of consecutive texts; if each text file is one document, use "
            "`--clean text_documents=files`; else train without this objective"
            + (f", `--set format=full_sentences --set objectives=[{','.join(others)}]`" if others else "")
        )


def _report_similar_words(text: Text, request: Request, recipe: Recipe, made: KeptTable, reporter: Reporter) -> None:
    reporter.message("similar", f"{made.coverage.source}; {made.coverage.describe()}")
    if (spec := recipe.replacement.similar_words) and (warning := few_words_warning(spec, made.coverage)):
        reporter.message("warning", warning)
    outcomes = measured_outcomes(recipe, text, request.seed)
    if total := sum(outcomes.values()):
        shares = ", ".join(f"{count / total:.1%} {name}" for name, count in outcomes.items())
        reporter.message("similar", f"of {total:,} selected tokens, sampled: {shares}")
        unknown = outcomes["random word (no similar word)"] / total
        if unknown > 0.2:
            reporter.message(
                "warning",
                f"{unknown:.0%} of the selected tokens become random words, since their sequences have too few words "
                "with a similar one: use another source (replacement.table.source), or include more words "
                "(replacement.table.min_count, replacement.table.min_similarity)",
            )


def measured_outcomes(recipe: Recipe, text: Text, seed: int) -> Mapping[str, int]:
    """Count the outcomes of the replacement for the selected tokens of a sample of sequences.

    The sample comes from evenly spaced documents, at the length of the first phase and with the first masking stage.
    """
    some = np.linspace(0, len(text.documents) - 1, min(len(text.documents), _DOCUMENTS_MEASURED)).astype(np.int64)
    documents = text.documents.pick(some)
    plan = recipe.format.plan(documents, recipe.training.phases[0].max_length, seed, 0)
    if not len(plan):
        return {}
    index = np.linspace(0, len(plan) - 1, min(len(plan), _SEQUENCES_MEASURED)).astype(np.int64)
    separators = recipe.format.separator_points(text.documents)
    specials = text.vocabulary.special_tokens
    instances = assemble(plan.rows(index), text.gather, specials, separator_points=separators)
    rng = RandomNumbers(seed, np.zeros(len(index), dtype=np.int64), index)
    examples = corrupt(instances, recipe.masking.stages[0][1], recipe.replacement, rng, text.vocabulary)
    return recipe.replacement.outcomes(instances, examples.selection, rng, text.vocabulary)
