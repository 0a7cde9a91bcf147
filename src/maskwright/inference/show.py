"""Show what the pretext task does to a text: mask and replace tokens exactly as training does in a given epoch."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from maskwright.core.errors import DataError, RecipeError
from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.randomness import RandomNumbers
from maskwright.core.similar_words import SimilarWordsSpec
from maskwright.core.types import AnnotatedTokens, Documents, Examples, Instances, IntArray, SpecialTokens, Targets
from maskwright.data.cleaning.sentences import split_paragraph
from maskwright.data.cleaning.store import clean_corpus
from maskwright.data.cleaning.text import Cleaning, clean_document
from maskwright.data.shards.corpus import Corpus
from maskwright.data.shards.tokenize import tokenize_corpus
from maskwright.data.similar_words import (
    Coverage,
    TokenSample,
    check_source,
    few_words_warning,
    similar_words,
    table_of,
)
from maskwright.data.tokenizers.stream_encoder import StreamEncoder
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import train_tokenizer
from maskwright.data.words.annotator import open_annotator
from maskwright.data.words.segmenters import describe_traditional
from maskwright.inference.small_tokenizer import small_tokenizer
from maskwright.pretext.formats.base import assemble
from maskwright.pretext.masking import Masking
from maskwright.pretext.replacement import VocabularyFacts
from maskwright.pretext.replacement.base import corrupt
from maskwright.recipes.catalog import names, resolve
from maskwright.recipes.recipe import Recipe
from maskwright.recipes.table import format_name
from maskwright.reporting.reporter import Progress, no_progress
from maskwright.training.steps.sampler import mask_sample_of

_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")

Change = Literal["masked", "replaced", "kept"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPreview:
    """One token of a sequence.

    Attributes:
        seen, original: The token the encoder sees and the token before masking, as readable text.
        special: Whether the input format inserted it.
        unit: Index within the sequence of its selected unit; None if not selected.
        change: Outcome for a selected token; None if not selected.
        sampled: The generator's token, which the encoder sees instead; None if not selected, or without a generator.
        is_replaced: The label of replaced token detection; None where that has no target.
    """

    seen: str
    original: str
    seen_id: int
    original_id: int
    segment: int
    begins_word: bool
    special: bool
    unit: int | None
    change: Change | None
    sampled: str | None = None
    sampled_id: int | None = None
    is_replaced: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanPreview:
    """The targets of the span boundary objective in a span.

    Attributes:
        left, right: Indices within the sequence of the boundary tokens.
        targets: Index within the sequence and position within the span, from 1, of each predicted token.
    """

    left: int
    right: int
    targets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SequencePreview:
    """The tokens of a sequence and its label: 0 or 1 (see `Format.label_meanings`), -1 for none.

    `spans` is None without a span boundary objective.
    """

    tokens: tuple[TokenPreview, ...]
    pair_label: int
    spans: tuple[SpanPreview, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Sequences, masks and targets that a recipe makes of a text.

    Attributes:
        tokenizer: Description of the tokenizer.
        epoch, stage: From 0, and from 1.
        mask_sample: Index of the sample of layouts and masks that the epoch uses.
        sequences: The first sequences of the text, of `num_sequences`.
        notes: Remarks for the reader.
    """

    recipe: Recipe
    tokenizer: str
    seed: int
    epoch: int
    mask_sample: int
    stage: int
    max_length: int
    sequences: tuple[SequencePreview, ...]
    num_sequences: int
    notes: tuple[str, ...]

    def pair_words(self, label: int) -> str:
        """Describe a sequence's label, or why it has none; "" if the format has no pairs."""
        meanings = self.recipe.format.label_meanings
        if meanings is None:
            return ""
        return f"{meanings[label]} (label {label})" if label >= 0 else "no pair: this is a single sentence"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "recipe": self.recipe.name}


def show(
    recipe: str | Recipe,
    text: str,
    *,
    tokenizer: Path | str | None = None,
    corpus: str | Path | Sequence[str | Path] | None = None,
    seed: int = 0,
    epoch: int = 0,
    stage: int | None = None,
    set: Sequence[str] = (),
    max_sequences: int = 10,
    cache: Path | None = None,
    progress: Progress = no_progress,
) -> Preview:
    """Format a text into sequences, then mask and replace tokens as training does in one epoch.

    Args:
        recipe: Name of a recipe (see `maskwright recipes`), path of its JSON file, or a run directory.
        text: Running text; blank lines separate documents.
        tokenizer: A tokenizer directory. Default: the run's, or a small one trained for this on the docstrings of the
            Python installation and the text.
        corpus: Corpus as for `maskwright pretrain`, for vocabulary, phrases, similar words and token counts; the recipe
            is not fitted to it.
        seed: Random seed.
        epoch: Epoch whose masks are shown.
        stage: Stage of training, if masking has several. Default: the last.
        set: As for `pretrain`.
        max_sequences: Maximum number of sequences.

    Raises:
        RecipeError: If the recipe is unknown, has no such stage, or an override does not fit.
        DataError: If the text is empty or the tokenizer cannot be read.

    Example:
        >>> show("bert/tiny", "The cat sat. It slept.").sequences[0].tokens[0].seen
        '[CLS]'
    """
    chosen = recipe if isinstance(recipe, Recipe) else resolve(recipe, set)
    documents = sentences_of_documents(text)
    if not documents:
        raise DataError("the text to show is empty", hint="Give a sentence or more.")
    run = _run_folder(recipe)
    has_own_tokenizer = run is not None and tokenizer is None
    tokenizer = tokenizer or run
    stage, masking = _stage(chosen, stage)
    if (spec := chosen.replacement.similar_words) is not None:
        check_source(spec)
    prepared: Corpus | None = None
    if corpus is not None:
        # As `pretrain` does, or from the cache.
        sources = [str(source) for source in ([corpus] if isinstance(corpus, str | Path) else corpus)]
        cleaned = clean_corpus(sources, cache=cache, progress=progress)
        if tokenizer is None:
            used = train_tokenizer(chosen.tokenizer, cleaned, seed=seed, cache=cache, progress=progress)
        else:
            used = Tokenizer.from_folder(tokenizer)
        prepared = tokenize_corpus(cleaned, used, words=chosen.words, cache=cache, progress=progress)
        described = str(tokenizer or ", ".join(sources))
    elif tokenizer is None:
        used = small_tokenizer(chosen.tokenizer, text, cache=cache, progress=progress)
        described = "trained on docstrings and this text"
    else:
        used, described = Tokenizer.from_folder(tokenizer), str(tokenizer)
    notes = list(_notes(chosen, stage, masking, used, prepared, num_documents=len(documents)))
    if note := describe_traditional(chosen.words, chain.from_iterable(documents)):
        notes.append(note)
    mask_sample = mask_sample_of(epoch, chosen.masks.copies)
    stream, encoded = _encoded(chosen, documents, used, prepared)
    special = used.special_tokens
    counts = prepared.token_counts if prepared else np.bincount(encoded.ids, minlength=special.vocab_size)
    vocabulary = VocabularyFacts(special_tokens=special, token_counts=counts)
    if spec is not None:
        if prepared is not None:
            made = similar_words(spec, prepared, used, cache=cache, progress=progress)
        else:
            sample = TokenSample(encoded.ids, encoded.word_starts, stream.sentence_ends)
            made = table_of(spec, sample, used)
        vocabulary = replace(vocabulary, similar_words=made.table)
        notes += _similar_words_notes(spec, made.coverage, has_corpus=prepared is not None)
    rng, instances, total = _laid_out(chosen, stream, encoded, special, seed, mask_sample, max_sequences)
    examples = corrupt(instances, masking, chosen.replacement, rng, vocabulary)
    outcomes = chosen.replacement.outcomes(instances, examples.selection, rng, vocabulary)
    if selected := sum(outcomes.values()):
        counted = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items() if count)
        notes.append(f"of the {selected} predicted tokens shown: {counted}")
    samples = None
    if chosen.generator is not None:
        samples, source = _samples(examples, rng, counts, run if has_own_tokenizer else None)
        notes.append(
            f"this is what the generator sees; the encoder sees the tokens sampled from {source} at all selected "
            f"positions, and learns by {', '.join(format_name(each.kind) for each in chosen.encoders['encoder'][1])}"
        )
    return Preview(
        recipe=chosen,
        tokenizer=f"{described}, {special.vocab_size:,} entries",
        seed=seed,
        epoch=epoch,
        mask_sample=mask_sample,
        stage=stage,
        max_length=chosen.training.phases[0].max_length,
        sequences=tuple(_shown_sequences(examples, used, chosen, samples)),
        num_sequences=total,
        notes=tuple(notes),
    )


def _notes(
    recipe: Recipe, stage: int, masking: Masking, tokenizer: Tokenizer, corpus: Corpus | None, *, num_documents: int
) -> Iterator[str]:
    stages = recipe.masking.stages
    if len(stages) > 1:
        yield (
            f"masking has {len(stages)} stages of training; this is stage {stage}, "
            f"{recipe.masking.stage_names[stage - 1]} ({stages[stage - 1][0]:.0%} of training); choose another with "
            "--stage N"
        )
    if tokenizer.kind != recipe.tokenizer.kind:
        yield f"the tokenizer is of kind {tokenizer.kind}, the recipe's of {recipe.tokenizer.kind}"
    if "next_sentence_label" in recipe.format.provides and num_documents == 1:
        yield 'with a single document, "random" second texts come from it too; blank lines separate documents'
    if corpus is None and "collocations" in recipe.words.phrases:
        yield "phrases from collocations need a corpus and are not shown"
    if corpus is None and (masking.uses_token_counts or recipe.replacement.uses_token_counts):
        yield (
            "masking depends on token counts of the training corpus; here only this text is counted. Give a corpus "
            "with --corpus"
        )


def sentences_of_documents(text: str) -> list[list[str]]:
    """Split a text at blank lines into documents, and these into sentences as in corpus preparation.

    Sentences include the white space before them, also at the start of a paragraph.
    """
    documents = []
    for document in _BLANK_LINES.split(text.replace("\r\n", "\n")):
        sentences: list[str] = []
        for paragraph in clean_document(document, Cleaning()):
            split = split_paragraph(paragraph)
            if sentences and split:
                split[0] = " " + split[0]
            sentences.extend(split)
        if sentences:
            documents.append(sentences)
    return documents


def _run_folder(recipe: str | Recipe) -> Path | None:
    # As in `resolve`, a recipe's name wins over a folder.
    if isinstance(recipe, Recipe) or recipe in names():
        return None
    folder = Path(recipe).expanduser()
    has_both = (folder / "recipe.json").is_file() and (folder / "tokenizer.json").is_file()
    return folder if has_both else None


def _stage(recipe: Recipe, wanted: int | None) -> tuple[int, Masking]:
    """Return a masking stage, the last by default: its number and its masking."""
    stages = recipe.masking.stages
    stage = len(stages) if wanted is None else wanted
    if not 1 <= stage <= len(stages):
        raise RecipeError(
            f"recipe {recipe.name!r} has no stage {stage} of masking",
            allowed=", ".join(f"{number} ({name})" for number, name in enumerate(recipe.masking.stage_names, start=1))
            or "1, all of training",
            hint="Leave --stage out to see the last.",
        )
    return stage, stages[stage - 1][1]


def _laid_out(
    recipe: Recipe,
    documents: Documents,
    encoded: AnnotatedTokens,
    special: SpecialTokens,
    seed: int,
    mask_sample: int,
    most: int,
) -> tuple[RandomNumbers, Instances, int]:
    """Return the random numbers and instances of the first sequences, and the number of all sequences."""

    def gather(starts: IntArray, ends: IntArray) -> AnnotatedTokens:
        positions = concatenated_ranges(starts, ends - starts)
        spans = {kind: begins[positions] for kind, begins in encoded.span_starts.items()}
        return AnnotatedTokens(encoded.ids[positions], encoded.word_starts[positions], spans)

    plan = recipe.format.plan(documents, recipe.training.phases[0].max_length, seed, mask_sample)
    number = np.arange(min(most, len(plan)))
    points = recipe.format.separator_points(documents)
    instances = assemble(plan.rows(number), gather, special, separator_points=points)
    return RandomNumbers(seed, np.full(len(number), mask_sample), number), instances, len(plan)


def _encoded(
    recipe: Recipe, texts: list[list[str]], tokenizer: Tokenizer, corpus: Corpus | None
) -> tuple[Documents, AnnotatedTokens]:
    """Encode all sentences; those without tokens are dropped, and so are documents."""
    annotator = open_annotator(recipe.words, None if corpus is None else corpus.collocations)
    sentences = [sentence for document in texts for sentence in document]
    stream = StreamEncoder(tokenizer, with_offsets=annotator is not None).encode(sentences)
    if not len(stream.ids):
        raise DataError("the tokenizer knows nothing in the text to show", hint="Give other text.")
    document_of = np.repeat(np.arange(len(texts)), [len(document) for document in texts])
    held = np.bincount(document_of[stream.lengths > 0], minlength=len(texts))
    last = np.cumsum(held[held > 0])
    documents = Documents(
        sentence_ends=np.cumsum(stream.lengths[stream.lengths > 0]), first=np.concatenate([[0], last[:-1]]), last=last
    )
    if annotator is None:
        return documents, AnnotatedTokens(stream.ids, stream.word_starts)
    annotated = annotator.annotate(sentences, stream)
    return documents, AnnotatedTokens(stream.ids, annotated.word_starts, annotated.span_starts)


def _similar_words_notes(spec: SimilarWordsSpec, coverage: Coverage, *, has_corpus: bool) -> Iterator[str]:
    # Without a corpus only a file of synonyms gives a useful table; the text itself is too short to learn one from.
    if spec.source == "corpus" and not has_corpus:
        yield (
            "similar words come from a corpus: give one with --corpus, or synonyms with "
            "--set replacement.table.source=FILE"
        )
        return
    where = "the corpus" if has_corpus else "this text"
    yield f"similar words: {coverage.source}; {coverage.covered:,} of the {coverage.words:,} words of {where} have one"
    if warning := few_words_warning(spec, coverage):
        yield warning


def _samples(examples: Examples, rng: RandomNumbers, counts: IntArray, run: Path | None) -> tuple[IntArray, str]:
    """Sample the generator's tokens with the random numbers of training: shape (M,), and what they are sampled from.

    From the generator of a run if there is one and it is saved, else from `counts`, shape (V,).
    """
    instances, positions = examples.instances, examples.selection.positions
    uniform = rng.uniform_of("generator sample", instances.cu_seqlens, positions)
    if run is None or not (run / "model.safetensors").is_file():
        running = np.cumsum(counts)
        return np.searchsorted(running, uniform * running[-1], side="right"), (
            "unigram frequencies (give a run to use its generator)"
        )
    from maskwright.inference.model import load  # It imports PyTorch.

    model, bounds = load(run).generator, instances.cu_seqlens[1:-1]
    assert model is not None, "the runs of a recipe with a generator save it"
    of_sequence = np.split(positions, np.searchsorted(positions, bounds))
    sampled = np.empty(len(positions), dtype=np.int64)
    for rows, scores in model.token_scores(
        np.split(examples.corrupted, bounds),
        [each - start for each, start in zip(of_sequence, instances.cu_seqlens[:-1], strict=True)],
        segments=np.split(instances.segment_ids.astype(np.int64), bounds),
    ):
        shares = scores.double().softmax(dim=1).cumsum(dim=1).numpy()
        numbers = uniform[rows] * shares[:, -1]
        sampled[rows] = [int(row.searchsorted(number, "right")) for row, number in zip(shares, numbers, strict=True)]
    return sampled, f"the generator of {run}"


def _shown_sequences(
    examples: Examples, tokenizer: Tokenizer, recipe: Recipe, samples: IntArray | None
) -> Iterator[SequencePreview]:
    """Yield the sequences of a batch with readable tokens."""
    instances, selection = examples.instances, examples.selection
    units = np.full(len(instances.ids), -1, dtype=np.int64)
    units[selection.positions] = selection.units
    encoder_ids = examples.corrupted.astype(np.int64)
    if samples is not None:
        encoder_ids[selection.positions] = samples
    targets = {objective.kind: objective.targets(examples) for objective in recipe.objectives}
    detected = targets["rtd"].positions if "rtd" in targets else np.zeros(0, dtype=np.int64)
    labels = dict(zip(detected.tolist(), (encoder_ids != instances.ids)[detected].tolist(), strict=True))
    mask = tokenizer.special_tokens.mask
    for label, (start, end) in zip(
        instances.pair_labels.tolist(), pairwise(instances.cu_seqlens.tolist()), strict=True
    ):
        selected = units[start:end][units[start:end] >= 0]
        tokens = []
        for position in range(start, end):
            original, seen = int(instances.ids[position]), int(examples.corrupted[position])
            change: Change = "masked" if seen == mask else "kept" if seen == original else "replaced"
            is_selected = units[position] >= 0
            sampled = int(encoder_ids[position]) if is_selected and samples is not None else None
            token = TokenPreview(
                seen=_readable(tokenizer, seen),
                original=_readable(tokenizer, original),
                seen_id=seen,
                original_id=original,
                segment=int(instances.segment_ids[position]),
                begins_word=bool(instances.word_starts[position]),
                special=bool(instances.special[position]),
                unit=int(units[position] - selected.min()) if is_selected else None,
                change=change if is_selected else None,
                sampled=None if sampled is None else _readable(tokenizer, sampled),
                sampled_id=sampled,
                is_replaced=labels.get(position),
            )
            tokens.append(token)
        yield SequencePreview(
            tuple(tokens), label, tuple(_shown_spans(targets["sbo"], start, end)) if "sbo" in targets else None
        )


def _shown_spans(targets: Targets, start: int, end: int) -> Iterator[SpanPreview]:
    columns = zip(
        *(targets.anchors[side].tolist() for side in ("left", "right")),
        targets.positions.tolist(),
        targets.extra["position"].tolist(),
        strict=True,
    )
    for (left, right), rows in groupby(columns, key=lambda row: row[:2]):
        if start <= left < end:
            span_targets = tuple((position - start, target) for _, _, position, target in rows)
            yield SpanPreview(left=left - start, right=right - start, targets=span_targets)


def _readable(tokenizer: Tokenizer, id: int) -> str:
    text = tokenizer.token_text(id)
    stripped = text.strip()
    # A whitespace-only token would be invisible, so it is escaped.
    return stripped or (repr(text)[1:-1] if text.strip(" ") else "␣" * len(text))
