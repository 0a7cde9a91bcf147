"""The texts that are measured on: made without any outside data, or a file's documents.

Made texts are deterministic. Lengths are log-normal, cut at the longest sequence as training cuts them, with the two
numbers below chosen so that a batch padded to 128 is filled to .48: what articles and comments come to. Ids follow
Zipf's law with Mandelbrot's offset, so that the embedding rows that a step touches are as many as in real text. What
ids say has no influence on time; how long texts are has.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.machine import own_machine
from benchmarks.settings import Settings
from benchmarks.shapes import Shape
from maskwright.core.flat_arrays import Runs
from maskwright.core.types import Documents, IntArray, SpecialTokens, TakenTokens
from maskwright.data.shards.encoding import id_type
from maskwright.pretext.formats import DocSentences
from maskwright.pretext.replacement.base import VocabularyFacts
from maskwright.recipes.catalog import resolve
from maskwright.recipes.optimization import AdamW, LengthPhase
from maskwright.recipes.recipe import Recipe
from maskwright.training.batches import Collator, MicroBatch, StepBatch
from maskwright.training.device import tokens_at_once
from maskwright.training.workload import Text, Workload, build_workload

LONGEST = 128
MEDIAN_LENGTH, SIGMA, SHORTEST = 52.0, 0.8, 8
"""Tokens, special ones counted: mean 61.6, an eighth of the texts cut at 128."""
_MANDELBROT = 2.7
_DRAWN_FOR_EACH = 12
_NAMES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SHARE_OF_WORD_STARTS = 0.8


def natural_lengths(count: int, seed: int, longest: int = LONGEST) -> IntArray:
    """Draw lengths of sequences in tokens, special ones counted. Shape (count,)."""
    draws = np.random.default_rng([seed, 1])
    scale = longest / LONGEST
    drawn = np.exp(draws.normal(np.log(MEDIAN_LENGTH * scale), SIGMA, count))
    return np.clip(np.rint(drawn), SHORTEST, longest).astype(np.int64)


def fill(lengths: IntArray, padded_to: int = LONGEST) -> float:
    """Return the share of real tokens in a batch padded to one length."""
    return float(lengths.sum() / (len(lengths) * padded_to))


def zipf_ids(count: int, vocab_size: int, seed: int) -> IntArray:
    """Draw ordinary token ids, frequent ones first. Shape (count,), int32."""
    first = len(_NAMES)
    weights = 1 / (np.arange(vocab_size - first) + 1 + _MANDELBROT)
    bounds = np.cumsum(weights / weights.sum())
    draws = np.random.default_rng([seed, 2])
    drawn = np.searchsorted(bounds, draws.random(count), side="right")
    return (first + np.minimum(drawn, vocab_size - first - 1)).astype(np.int32)


def special_tokens(vocab_size: int) -> SpecialTokens:
    """Return WordPiece's special tokens in a vocabulary of a size."""
    return SpecialTokens(pad=0, unk=1, cls=2, sep=3, mask=4, vocab_size=vocab_size, names=_NAMES)


def made_text(lengths: IntArray, vocab_size: int, seed: int) -> Text:
    """Make documents that give sequences of these lengths, two special tokens counted."""
    sizes = lengths - 2
    ids = zipf_ids(int(sizes.sum()), vocab_size, seed)
    return text_of(ids, np.cumsum(sizes), vocab_size, seed)


def text_of(ids: IntArray, ends: IntArray, vocab_size: int, seed: int, word_starts: IntArray | None = None) -> Text:
    """Wrap a token stream as training takes it: each document one sentence, so that each gives one sequence.

    Args:
        ids: Shape (T,).
        ends: Shape (D,), where documents end.
        vocab_size: Entries.
        seed: Keys where words and units begin, where that is not known.
        word_starts: Shape (T,), where words begin; None draws four in five.
    """
    draws = np.random.default_rng([seed, 3])
    begins = np.concatenate([[0], ends[:-1]])
    if word_starts is None:
        word_starts = draws.random(len(ids)) < _SHARE_OF_WORD_STARTS
        word_starts[begins] = True
    levels = {"phrase": word_starts & (draws.random(len(ids)) < 0.7)}
    levels["entity"] = levels["phrase"] & (draws.random(len(ids)) < 0.9)
    for starts in levels.values():
        starts[begins] = True

    stored = ids.astype(id_type(vocab_size))
    packed = {name: np.packbits(each, bitorder="little") for name, each in {"": word_starts, **levels}.items()}

    def take(starts: IntArray, stops: IntArray) -> TakenTokens:
        # As `text.corpus.Corpus.take` reads one shard, whose bits are packed.
        lengths = stops - starts
        total = int(lengths.sum())
        runs = Runs(starts, np.cumsum(lengths) - lengths, lengths)
        taken = np.empty(total, dtype=np.int32)
        runs.copy_ids(stored, taken)
        unpacked = {level: np.empty(total, dtype=np.bool_) for level in packed}
        for level, bits in packed.items():
            runs.unpack(bits, unpacked[level])
        return TakenTokens(taken, unpacked.pop(""), unpacked)

    numbers = np.arange(len(ends), dtype=np.int64)
    documents = Documents(ends, numbers, numbers + 1)
    return Text(
        documents=documents,
        sources=np.zeros(len(ends), dtype=np.int64),
        weights=None,
        document_ends=ends,
        take=take,
        vocabulary=VocabularyFacts(
            special_tokens=special_tokens(vocab_size), token_counts=np.bincount(ids, minlength=vocab_size)
        ),
    )


def text_from_file(path: Path, vocab_size: int, longest: int, seed: int, cache: Path) -> Text:
    """Read a file's documents with a vocabulary learnt from it; each gives one sequence, cut at `longest`.

    Args:
        path: Anything that `maskwright pretrain` takes as a corpus.
        vocab_size: Entries asked for; the file must be large enough to fill them.
        longest: Longest sequence, special tokens counted.
        seed: Keys the vocabulary's sample.
        cache: Where prepared text is kept.
    """
    from maskwright.data.cleaning.store import clean_corpus
    from maskwright.data.shards.tokenize import tokenize_corpus
    from maskwright.data.tokenizers.spec import WordPiece
    from maskwright.data.tokenizers.vocabulary import train_tokenizer

    clean = clean_corpus([path], cache=cache)
    tokenizer = train_tokenizer(WordPiece(vocab_size=vocab_size, lowercase=True), clean, seed=seed, cache=cache)
    corpus = tokenize_corpus(clean, tokenizer, cache=cache)
    starts = np.concatenate([[0], corpus.document_ends[:-1]])
    stops = np.minimum(corpus.document_ends, starts + longest - 2)
    taken = corpus.take(starts, stops)
    return text_of(taken.ids, np.cumsum(stops - starts), tokenizer.special_tokens.vocab_size, seed, taken.word_starts)


def text_for(
    shape: Shape, settings: Settings, *, blocks: bool = False, length: int = LONGEST, count: int = 4096
) -> Text:
    """Return the text that a shape is measured on.

    Args:
        shape: Its vocabulary counts.
        settings: Whether documents come from a file.
        blocks: Whether every sequence is full, as where running text is cut into blocks.
        length: Longest sequence.
        count: Documents to make.
    """
    if settings.quick:
        count = min(count, 600)
    if blocks:
        return made_text(np.full(count, length), shape.vocabulary, settings.seed)
    if settings.corpus is not None:
        return text_from_file(settings.corpus, shape.vocabulary, length, settings.seed, settings.scratch / "cache")
    return made_text(natural_lengths(count, settings.seed, length), shape.vocabulary, settings.seed)


def mlm_recipe(shape: Shape, *, dropout: float, batch: int, length: int = LONGEST) -> Recipe:
    """Return masked language modelling alone, with the optimizer as PyTorch and transformers have it.

    Args:
        shape: The model.
        dropout: Share dropped, hidden values and attention probabilities.
        batch: Sequences in a step.
        length: Longest sequence.
    """
    published = resolve("bert/base")
    training = published.training.replace(
        batch_sequences=batch,
        phases=(LengthPhase(share=1.0, max_length=length),),
        optimizer=AdamW(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, bias_correction=True),
    )
    return published.replace(
        name=f"benchmark/{shape.name}",
        family=shape.family,
        tokenizer=published.tokenizer.replace(vocab_size=max(100, shape.vocabulary)),
        format=DocSentences(),
        objectives=({"kind": "mlm"},),
        encoder=shape.config(dropout, length=length),
        training=training,
    )


@dataclass(frozen=True, slots=True)
class Source:
    """Steps of a recipe over a text, made as training makes them.

    Attributes:
        recipe: What is trained.
        text: What it reads.
    """

    recipe: Recipe
    text: Text

    def collator(self, seed: int = 0) -> Collator:
        """Return what turns planned sequences into a step's tensors."""
        return self.workload(seed).phases[0].collator

    def steps(self, count: int, *, batch: int | None = None, seed: int = 0) -> list[StepBatch]:
        """Make some steps, each of other sequences.

        Args:
            count: How many.
            batch: Sequences in each; None for the recipe's.
            seed: Keys order and masks.
        """
        phase = self.workload(seed).phases[0]
        cursor = phase.stream.start()
        made = []
        for number in range(count):
            rows, cursor = phase.stream.read(cursor, batch or self.recipe.training.batch_sequences)
            made.append(phase.collator.collate(rows, number))
        return made

    def typical_steps(self, count: int, seed: int = 0) -> list[StepBatch]:
        """Make some steps that hold about as many tokens as steps do on average.

        A few steps of a few texts each would else be longer or shorter than the text at large by chance, and with
        them the share of padding that a peer computes on.

        Args:
            count: How many.
            seed: Keys order and masks.
        """
        made = self.steps(_DRAWN_FOR_EACH * count, seed=seed)
        tokens = np.array([step.num_tokens for step in made])
        nearest = np.argsort(np.abs(tokens - tokens.mean()), kind="stable")[:count]
        return [made[number] for number in sorted(nearest.tolist())]

    def workload(self, seed: int = 0) -> Workload:
        """Return the phases of training as a run has them, nothing held out."""
        slots = tokens_at_once(own_machine(), self.recipe)
        return build_workload(self.recipe, self.text, seed=seed, held_out_tokens=0, tokens_per_microbatch=slots)


@dataclass(frozen=True, slots=True)
class Example:
    """One sequence as a peer's dataset holds it.

    Attributes:
        ids: Shape (L,), masks in place.
        labels: Shape (L,), the right token where one is asked for, else -100.
        original: Shape (L,), nothing masked.
    """

    ids: IntArray
    labels: IntArray
    original: IntArray


def examples_of(steps: list[StepBatch], objective: str = "mlm") -> list[list[Example]]:
    """Take steps apart again: for each, its sequences with the masks they have there."""
    return [
        list(itertools.chain.from_iterable(_examples(micro, objective) for micro in step.micro_batches))
        for step in steps
    ]


def _examples(micro: MicroBatch, objective: str) -> list[Example]:
    ids, owners = micro.batch.ids.numpy(), micro.batch.sequence_ids.numpy()
    positions, answers = (getattr(micro.targets[objective], name).numpy() for name in ("positions", "labels"))
    labels, original = np.full(len(ids), -100, dtype=np.int64), ids.copy()
    labels[positions] = answers
    original[positions] = answers
    examples = []
    for first in micro.batch.first_tokens.tolist():
        end = first + int(np.argmin(np.append(owners[first:] == owners[first], False)))
        examples.append(Example(ids[first:end], labels[first:end], original[first:end]))
    return examples
