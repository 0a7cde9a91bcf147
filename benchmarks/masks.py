"""From planned sequences to batches, for every masking, and how long a training step waits for its data.

Two speeds, in tokens of text a second on one thread: "masks" (select, then replace, on flat arrays) and "batches" (the
whole of a step's preparation: read, lay out, mask, find targets, pack into rows, cut, tensors). What is drawn is
checked: how many tokens, of which lengths, where, and what replaced them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.goals import GOALS
from benchmarks.own import OwnStep
from benchmarks.report import Check, Report, Table
from benchmarks.settings import Settings
from benchmarks.shapes import BASE, TINY, fitted
from benchmarks.timing import Side, Spread, interleave, number, speeds
from benchmarks.tokenizer import word_tokenizer
from benchmarks.workloads import Source, examples_of, made_text, mlm_recipe, natural_lengths, text_for
from maskwright.core.randomness import Draws
from maskwright.core.types import Instances, IntArray, Selection
from maskwright.pretext.formats import DocSentences
from maskwright.pretext.masking import (
    LevelMasking,
    Masking,
    NgramMasking,
    PMIMasking,
    SpanMasking,
    TokenMasking,
    WholeWordMasking,
)
from maskwright.pretext.replacement import MaskRandomKeep, VocabularyFacts
from maskwright.training.stream import Rows
from maskwright.training.workload import Text

MACBERT = (0.4, 0.3, 0.2, 0.1)
MASKINGS: Mapping[str, Masking] = {
    "token (BERT)": TokenMasking(),
    "token, rare ones (DistilBERT)": TokenMasking(favour="rare"),
    "whole word (BERT-wwm)": WholeWordMasking(),
    "whole word, budget of words": WholeWordMasking(budget="words"),
    "n-gram, random order (ALBERT)": NgramMasking(),
    "n-gram, left to right (MacBERT)": NgramMasking(length_shares=MACBERT, budget="words", order="left_to_right"),
    "span (SpanBERT)": SpanMasking(),
    "span, whole words only": SpanMasking(cut_last_word=False),
    "levels (ERNIE)": LevelMasking(order="mixed"),
    "PMI": PMIMasking(),
}
REPLACEMENT = MaskRandomKeep()
_SEQUENCES, _CHECKED_SEQUENCES, _CHECKED_LENGTH = 8192, 2000, 512
_DEVIATIONS = 4.5
"""Standard deviations that a share may be off: wrong once in 150,000."""
_LENGTHS_APART = 0.03
"""Half the summed difference of length shares: units come out shorter where a text or a budget ends, or join."""
_ROUNDS = 9
_PEER = "transformers' collator (token)"


def run(settings: Settings) -> Report:
    """Time every masking, check what it draws, and let two models train to see how long they wait."""
    count = 256 if settings.quick else _SEQUENCES
    shape = fitted(TINY, settings)
    text = made_text(natural_lengths(count, settings.seed), shape.vocabulary, settings.seed)
    source = Source(mlm_recipe(shape, dropout=0.0, batch=count), text)
    rows, instances, draws = _laid_out(source, text, settings.seed)
    sides = [
        side
        for name, masking in MASKINGS.items()
        for side in (
            Side(f"{name}: masks", _masks(masking, instances, draws, text.vocabulary)),
            Side(f"{name}: batches", _batches(source, masking, rows)),
        )
    ]
    sides.append(_peer(source, settings, shape.vocabulary))
    seconds = interleave(sides, settings.rounds_or(_ROUNDS))
    tokens = len(instances.ids)
    rate = {name: speeds(each, tokens / 1e6) for name, each in seconds.items()}
    waits = [_wait(name, settings) for name in ("tiny", "base")]
    goal, wait_goal = GOALS["masks", "a second"]["tokens"] / 1e6, GOALS["masks", "a step"]["waited"]
    table = Table(
        title=f"Mtok/s on one thread, {tokens:,} tokens in {count:,} texts of natural length",
        columns=("masking", "masks", "batches", "goal"),
        rows=(
            *(
                (
                    name,
                    Spread.of(rate[f"{name}: masks"]).told(),
                    Spread.of(rate[f"{name}: batches"]).told(),
                    number(goal),
                )
                for name in MASKINGS
            ),
            (_PEER, "", Spread.of(rate[_PEER]).told(), ""),
        ),
    )
    waiting = Table(
        title="waiting for data in training (two threads compute, one prepares)",
        columns=("model", "step, ms", "waited", "goal"),
        rows=tuple((wait.model, number(1e3 * wait.step), f"{wait.share:.2%}", f"< {wait_goal:.0%}") for wait in waits),
    )
    return Report(
        tables=(table, waiting),
        measurements=(
            *({"side": name, "seconds": each, "tokens": tokens} for name, each in seconds.items()),
            *({"model": wait.model, "step": wait.step, "waited": wait.share} for wait in waits),
        ),
        checks=tuple(check for name, masking in MASKINGS.items() for check in _checks(name, masking, settings)),
        notes=(
            "transformers' collator pads, makes tensors and draws masks; it gets texts 32 at a time, as in training.",
        ),
    )


def _laid_out(source: Source, text: Text, seed: int) -> tuple[Rows, Instances, Draws]:
    phase = source.workload(seed).phases[0]
    rows, _ = phase.stream.read(phase.stream.start(), len(text.documents))
    collator = phase.collator
    instances = collator.format.lay_out(rows.plan, text.take, text.vocabulary.special_tokens, collator.separator_points)
    return rows, instances, Draws(seed, rows.refresh, rows.index)


def _masks(masking: Masking, instances: Instances, draws: Draws, vocabulary: VocabularyFacts) -> Callable[[], None]:
    def work() -> None:
        selection = masking.select(instances, draws, vocabulary.token_counts)
        REPLACEMENT.replace_tokens(instances, selection, draws, vocabulary)

    return work


def _batches(source: Source, masking: Masking, rows: Rows) -> Callable[[], None]:
    collator = replace(source.collator(), masking=masking)

    def work() -> None:
        collator.collate(rows, 0)

    return work


def _peer(source: Source, settings: Settings, vocab_size: int) -> Side:
    from transformers import AutoTokenizer, DataCollatorForLanguageModeling

    folder = settings.scratch / "tokenizer"
    word_tokenizer(vocab_size).save(folder)
    collate = DataCollatorForLanguageModeling(AutoTokenizer.from_pretrained(folder), mlm_probability=0.15)
    (texts,) = examples_of(source.steps(1, seed=settings.seed))
    features = [
        {
            "input_ids": each.original.tolist(),
            "token_type_ids": [0] * len(each.ids),
            "attention_mask": [1] * len(each.ids),
        }
        for each in texts
    ]

    def work() -> None:
        for first in range(0, len(features), 32):
            collate(features[first : first + 32])

    return Side(_PEER, work)


# --- what is drawn


def _checks(name: str, masking: Masking, settings: Settings) -> list[Check]:
    """Look at one drawing over long sequences, where budgets end a unit rarely."""
    count = 200 if settings.quick else _CHECKED_SEQUENCES
    text = made_text(np.full(count, _CHECKED_LENGTH), 30522, settings.seed)
    instances, draws = _long_sequences(text, settings.seed)
    selection = masking.select(instances, draws, text.vocabulary.token_counts)
    corrupted = REPLACEMENT.replace_tokens(instances, selection, draws, text.vocabulary)
    return [
        _count_check(name, masking, instances, selection, draws),
        *_length_check(name, masking, instances, selection),
        _place_check(name, instances, selection),
        _replacement_check(name, instances, selection, corrupted, text),
    ]


def _long_sequences(text: Text, seed: int) -> tuple[Instances, Draws]:
    form = DocSentences()
    plan = form.plan(text.documents, _CHECKED_LENGTH, seed, 0)
    instances = form.lay_out(plan, text.take, text.vocabulary.special_tokens, form.separator_points(text.documents))
    return instances, Draws(seed, np.zeros(len(plan), dtype=np.int64), np.arange(len(plan)))


def _count_check(name: str, masking: Masking, instances: Instances, selection: Selection, draws: Draws) -> Check:
    if isinstance(masking, LevelMasking):  # no budget: the share of tokens is the rate, on average
        share, spread = len(selection.positions) / int((~instances.special).sum()), 0.005
        near = abs(share - masking.rate) <= spread
        return Check(f"{name}: share selected", f"{share:.4f}", f"{masking.rate} ± {spread}", near)
    budgets = masking.budgets(instances, draws)
    counted = _units_counted(masking, instances, selection)
    taken = np.bincount(instances.sequence_ids[counted], minlength=len(instances))
    share = float(taken.sum() / budgets.sum())
    passed = bool((taken <= budgets).all()) and share >= 0.99
    return Check(f"{name}: selected of the budget", f"{share:.4%}", "99 to 100 %, never more", passed)


def _units_counted(masking: Masking, instances: Instances, selection: Selection) -> IntArray:
    positions = selection.positions
    if getattr(masking, "budget", "tokens") == "words":
        return positions[instances.word_starts[positions]]
    return positions


def _length_check(name: str, masking: Masking, instances: Instances, selection: Selection) -> list[Check]:
    stated = getattr(masking, "length_shares", None)
    if stated is None:
        return []
    words = np.cumsum(instances.word_starts)
    lengths = words[selection.ends - 1] - words[selection.starts] + 1
    found = np.bincount(lengths, minlength=len(stated) + 1)[1:] / len(lengths)
    wanted = np.zeros(len(found))
    wanted[: len(stated)] = stated
    apart = float(np.abs(found - wanted).sum() / 2)
    # Chance alone sets the shares of k lengths among n units apart by about 0.4 sqrt(k / n).
    allowed = _LENGTHS_APART + 0.6 * float(np.sqrt(len(stated) / len(lengths)))
    mean = float((np.arange(1, len(stated) + 1) * np.asarray(stated)).sum())
    return [
        Check(
            f"{name}: shares of lengths",
            f"{apart:.3f} apart, mean {lengths.mean():.2f} words",
            f"{allowed:.3f} apart, stated mean {mean:.2f}",
            apart <= allowed,
        )
    ]


def _place_check(name: str, instances: Instances, selection: Selection) -> Check:
    """Units stand in the first half of their sequence as often as in the second."""
    sequences = instances.sequence_ids[selection.starts]
    offsets = (selection.starts + selection.ends - 1) / 2 - instances.cu_seqlens[sequences]
    first = float((offsets < (_CHECKED_LENGTH - 1) / 2).mean())
    allowed = _DEVIATIONS * 0.5 / float(np.sqrt(len(sequences)))
    return Check(f"{name}: in the first half", f"{first:.4f}", f"0.5 ± {allowed:.4f}", abs(first - 0.5) <= allowed)


def _replacement_check(name: str, instances: Instances, selection: Selection, corrupted: IntArray, text: Text) -> Check:
    positions = selection.positions
    special = text.vocabulary.special_tokens
    masked = float((corrupted[positions] == special.mask).mean())
    kept = float((corrupted[positions] == instances.ids[positions]).mean())
    outside = np.delete(corrupted == instances.ids, positions).all()
    chance = 0.1 / special.vocab_size  # a random token may be the mask, or the right one

    def within(found: float, share: float) -> bool:
        return bool(abs(found - share - chance) <= _DEVIATIONS * np.sqrt(share * (1 - share) / len(positions)))

    return Check(
        f"{name}: masked, kept, elsewhere unchanged",
        f"{masked:.4f}, {kept:.4f}, {'yes' if outside else 'NO'}",
        f"0.8, 0.1 within {_DEVIATIONS} deviations",
        within(masked, 0.8) and within(kept, 0.1) and bool(outside),
    )


# --- waiting


@dataclass(frozen=True, slots=True)
class Wait:
    """How long training waits.

    Attributes:
        model: Which.
        step: Median seconds of a step, waiting counted.
        share: Share of all time spent waiting for data.
    """

    model: str
    step: float
    share: float


def _wait(name: str, settings: Settings) -> Wait:
    shape = fitted(TINY if name == "tiny" else BASE, settings)
    text = text_for(shape, settings)
    source = Source(mlm_recipe(shape, dropout=0.1, batch=shape.documents), text)
    own = OwnStep(source.recipe, text, seed=settings.seed)
    with own.around():
        reports = own.loop(source.workload(settings.seed), 4 if settings.quick else 8 if name == "base" else 60)
    seconds = [report.seconds for report in reports]
    return Wait(shape.told(), float(np.median(seconds)), sum(report.waited for report in reports) / sum(seconds))
