"""Run the pretext task on a given text, exactly as training would in a given epoch."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.core.errors import DataError, RecipeError
from maskwright.core.randomness import Draws
from maskwright.core.types import Documents, Instances, IntArray, SpecialTokens, TakenTokens
from maskwright.data.cleaning.sentences import sentences_of
from maskwright.data.cleaning.text import Cleaning, clean_document
from maskwright.data.progress import Progress
from maskwright.data.shards.corpus import Corpus
from maskwright.data.tokenizers.stream_encoder import StreamEncoder
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.words.annotator import open_annotator
from maskwright.data.words.similar_words import TokenSample, check_source
from maskwright.inference.showing.corpus import prepared_corpus, similar_words_for
from maskwright.inference.showing.sequences import ShownSequence, shown_sequences
from maskwright.inference.showing.tokenizer import small_tokenizer
from maskwright.pretext.corrupt import corrupt
from maskwright.pretext.masking import Masking
from maskwright.pretext.replacement import VocabularyFacts
from maskwright.recipes.catalog import names, resolve
from maskwright.recipes.default_cleaning import default_cleaning
from maskwright.recipes.recipe import Recipe

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
        stage: Which stretch of training is shown, from 1; masking differs between them where there are several.
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
    stage: int
    max_length: int
    sequences: tuple[ShownSequence, ...]
    num_sequences: int
    notes: tuple[str, ...]

    def pair_words(self, label: int) -> str:
        """Say in words what a sequence's label means; "" where there is none."""
        meanings = self.recipe.format.label_meanings
        return f"{meanings[label]} (label {label})" if meanings is not None and label >= 0 else ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data, for programs."""
        return {
            "recipe": self.recipe.name,
            "tokenizer": self.tokenizer,
            "seed": self.seed,
            "epoch": self.epoch,
            "refresh": self.refresh,
            "stage": self.stage,
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
    corpus: str | Path | Sequence[str | Path] | None = None,
    seed: int = 0,
    epoch: int = 0,
    stage: int | None = None,
    set: Sequence[str] = (),
    max_sequences: int = 10,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Showing:
    """Lay out a text, select tokens and replace them as training does in one epoch.

    Args:
        recipe: A recipe's name, its JSON file, or the recipe itself.
        text: Running text; blank lines separate documents.
        tokenizer: A folder with a tokenizer. None takes the run's, where `recipe` is a run's folder, and else learns a
            small one from the docstrings of the Python installation and from the text, so that all its characters
            are known.
        corpus: Corpus arguments, as `pretrain` takes them: the vocabulary (unless a tokenizer is given), phrases,
            similar words and how often tokens occur are learnt from it, by the recipe as it stands: nothing is fitted.
        seed: The run's seed.
        epoch: Which epoch, from 0.
        stage: Which stretch of training, from 1, where masking goes in several (ERNIE); None for the last.
        set: Overrides of the recipe, "field.path=value", if it is given by name.
        max_sequences: Most sequences shown.
        cache: Where the small tokenizer is kept; None for the user's cache folder.
        progress: Called while the small tokenizer is trained.

    Raises:
        RecipeError: If the recipe is unknown, has no such stage, or an override does not fit.
        DataError: If the text is empty or the tokenizer cannot be read.

    Example:
        >>> show("bert/tiny", "The cat sat. It slept.").sequences[0].tokens[0].seen
        '[CLS]'
    """
    chosen = recipe if isinstance(recipe, Recipe) else resolve(recipe, set)
    documents = sentences_of_documents(text, default_cleaning(chosen))
    if not documents:
        raise DataError("the text to show is empty", todo="Give a sentence or more.")
    tokenizer = tokenizer or _tokenizer_of_run(recipe)
    notes = []
    stage, masking = _stage(chosen, stage)
    if len(chosen.masking.stages) > 1:
        share = chosen.masking.stages[stage - 1][0]
        notes.append(
            f"masking goes in {len(chosen.masking.stages)} stages of training; shown is stage {stage}, "
            f"{chosen.masking.stage_names[stage - 1]} ({share:.0%} of training); for another: --stage N"
        )
    tokens: Corpus | None = None
    if (spec := chosen.replacement.similar_words) is not None:
        check_source(spec)
    if corpus is not None:
        named = [str(source) for source in ([corpus] if isinstance(corpus, str | Path) else corpus)]
        tokens = prepared_corpus(chosen, named, tokenizer, seed=seed, cache=cache, progress=progress)
        used = tokens.tokenizer()
        words = f"{tokenizer or ', '.join(named)}, {used.special_tokens.vocab_size:,} entries"
    elif tokenizer is None:
        used = small_tokenizer(chosen.tokenizer, text, cache=cache, progress=progress)
        words = f"a small one of {used.special_tokens.vocab_size:,} entries, learnt from docstrings and this text"
    else:
        used = Tokenizer.from_folder(tokenizer)
        words = f"{tokenizer}, {used.special_tokens.vocab_size:,} entries"
        if used.kind != chosen.tokenizer.kind:
            notes.append(f"the tokenizer is of kind {used.kind}, the recipe's of {chosen.tokenizer.kind}")
    if "next_sentence_label" in chosen.format.provides and len(documents) == 1:
        notes.append('of a single document even "random" second texts come from it; blank lines separate documents')
    if chosen.generator is not None:
        notes.append(
            "this is what the generator sees; what it draws then stands at every predicted place, and the encoder says "
            "of each token whether it is the original"
        )
    if unseen := _unseen(chosen, tokens):
        notes.append(unseen)
    refresh = chosen.masks.refresh(epoch)
    stream, encoded = _encoded(chosen, documents, used, tokens)
    special = used.special_tokens
    counts = tokens.token_counts if tokens else np.bincount(encoded.ids, minlength=special.vocab_size)
    if tokens is None and (masking.uses_token_counts or chosen.replacement.uses_token_counts):
        notes.append(
            "training goes by how often tokens occur in its corpus, and here they are counted in this text alone: name "
            "a corpus with --corpus"
        )
    vocabulary = VocabularyFacts(special_tokens=special, token_counts=counts)
    if spec is not None:
        sample = TokenSample(encoded.ids, encoded.word_starts, stream.sentence_ends)
        made, note = similar_words_for(spec, sample, used, tokens, cache=cache, progress=progress)
        vocabulary = replace(vocabulary, similar_words=made.table)
        notes.append(note)
    draws, instances, total = _laid_out(chosen, stream, encoded, special, seed, refresh, max_sequences)
    examples = corrupt(instances, masking, chosen.replacement, draws, vocabulary)
    outcomes = chosen.replacement.outcomes(instances, examples.selection, draws, vocabulary)
    if sum(outcomes.values()):
        told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items() if count)
        notes.append(f"of the {sum(outcomes.values())} tokens to predict in what is shown: {told}")
    return Showing(
        recipe=chosen,
        tokenizer=words,
        seed=seed,
        epoch=epoch,
        refresh=refresh,
        stage=stage,
        max_length=chosen.training.phases[0].max_length,
        sequences=tuple(shown_sequences(examples, used)),
        num_sequences=total,
        notes=tuple(notes),
    )


def sentences_of_documents(text: str, cleaning: Cleaning = Cleaning()) -> list[list[str]]:
    """Split a text at blank lines into documents and these into sentences, as a corpus is prepared.

    A sentence carries the white space before it, also where a paragraph begins.
    """
    documents = []
    for document in _BLANK_LINES.split(text.replace("\r\n", "\n")):
        sentences: list[str] = []
        for paragraph in clean_document(document, cleaning):
            split = sentences_of(paragraph, cleaning)
            if sentences and split:
                split[0] = " " + split[0]
            sentences.extend(split)
        if sentences:
            documents.append(sentences)
    return documents


def _tokenizer_of_run(recipe: str | Recipe) -> Path | None:
    # As in `resolve`, a recipe's name wins over a folder.
    if isinstance(recipe, Recipe) or recipe in names():
        return None
    folder = Path(recipe).expanduser()
    has_both = (folder / "recipe.json").is_file() and (folder / "tokenizer.json").is_file()
    return folder if has_both else None


def _stage(recipe: Recipe, wanted: int | None) -> tuple[int, Masking]:
    """Return the number of a stretch of training, the last one by default, and the masking in it."""
    stages = recipe.masking.stages
    stage = len(stages) if wanted is None else wanted
    if not 1 <= stage <= len(stages):
        raise RecipeError(
            f"recipe {recipe.name!r} has no stage {stage} of masking",
            allowed=", ".join(f"{number} ({name})" for number, name in enumerate(recipe.masking.stage_names, start=1))
            or "1, all of training",
            todo="Leave --stage out to see the last.",
        )
    return stage, stages[stage - 1][1]


def _laid_out(
    recipe: Recipe,
    documents: Documents,
    encoded: TakenTokens,
    special: SpecialTokens,
    seed: int,
    refresh: int,
    most: int,
) -> tuple[Draws, Instances, int]:
    """Return the first sequences that the text makes, the numbers to corrupt them by, and how many it makes in all."""

    def take(starts: IntArray, ends: IntArray) -> TakenTokens:
        lengths = ends - starts
        offsets = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        places = np.repeat(starts, lengths) + offsets
        levels = {level: begins[places] for level, begins in encoded.level_starts.items()}
        return TakenTokens(encoded.ids[places], encoded.word_starts[places], levels)

    plan = recipe.format.plan(documents, recipe.training.phases[0].max_length, seed, refresh)
    number = np.arange(min(most, len(plan)))
    instances = recipe.format.lay_out(plan.rows(number), take, special, recipe.format.separator_points(documents))
    return Draws(seed, np.full(len(number), refresh), number), instances, len(plan)


def _encoded(
    recipe: Recipe, texts: list[list[str]], tokenizer: Tokenizer, corpus: Corpus | None
) -> tuple[Documents, TakenTokens]:
    """Encode sentences to one stream; sentences and documents without tokens are left out."""
    annotator = open_annotator(recipe.words, None if corpus is None else corpus.collocations)
    sentences = [sentence for document in texts for sentence in document]
    stream = StreamEncoder(tokenizer, with_places=annotator is not None).encode(sentences)
    if not len(stream.ids):
        raise DataError("the text to show holds nothing that the tokenizer knows", todo="Give other text.")
    document_of = np.repeat(np.arange(len(texts)), [len(document) for document in texts])
    held = np.bincount(document_of[stream.lengths > 0], minlength=len(texts))
    last = np.cumsum(held[held > 0])
    documents = Documents(
        sentence_ends=np.cumsum(stream.lengths[stream.lengths > 0]),
        first=np.concatenate([[0], last[:-1]]),
        last=last,
    )
    if annotator is None:
        return documents, TakenTokens(stream.ids, stream.word_starts)
    found = annotator.annotate(sentences, stream)
    return documents, TakenTokens(stream.ids, found.word_starts, found.level_starts)


def _unseen(recipe: Recipe, corpus: Corpus | None) -> str:
    """Say which phrases and entities cannot be shown, since they belong to a corpus; "" if all are."""
    belong = {"collocations", "corpus"} if corpus is None else {"corpus"}
    unseen = [source for source in (*recipe.words.phrases, *recipe.words.entities) if source in belong]
    if not unseen:
        return ""
    return f"phrases and entities from {' and '.join(dict.fromkeys(unseen))} belong to a corpus and are not shown"
