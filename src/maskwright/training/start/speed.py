"""The training speed of a recipe on this machine, measured before a run."""

import contextlib
import statistics
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.types import AnnotatedTokens, Documents, IntArray, SpecialTokens
from maskwright.fitting.budget import Budget, Spent
from maskwright.fitting.resolve import CorpusStatistics, Speed, resolve
from maskwright.fitting.rules import is_fixed
from maskwright.kernels.setting import kernels_enabled, use_kernels
from maskwright.machine.contention import SpinControl
from maskwright.pretext.replacement.base import VocabularyFacts
from maskwright.recipes.recipe import Recipe
from maskwright.training.ranks.device import Machine, pretraining_microbatch
from maskwright.training.steps.kernel_check import check_phases
from maskwright.training.steps.loop import Position, Schedule, train
from maskwright.training.steps.model import build_model
from maskwright.training.steps.text import Text, mean_lengths
from maskwright.training.steps.update_rules import build_optimizer
from maskwright.training.steps.workload import build_workload, skipped_flops, step_flops

_ROUNDS = ((1.0, 1), (3.0, 4))
"""Seconds and fewest steps of each measurement; the recipe is fitted anew to the last speed."""
_MOST_SHARE = 0.05
"""Share of the budget that a measurement takes at most, if it is more than those seconds: steps that a busy machine
computes slowly are not repeated."""
_STEPS_THAT_FIT = 4
"""Predicted steps that fit into a measurement; the batch of longer ones is smaller. One step of the recipe can take
minutes on a machine that is much slower than predicted."""
_GUESSED_MFU = 0.3
_BATCH_GROWTH = 4
"""Factor by which the steps that are tried on a GPU grow."""
_TIME_GROWTH = 1.5
"""They grow while one takes less than this many times as long as the smallest: launching the kernels of a small step
takes longer than computing them."""
_TRIAL_SECONDS = 1.0
"""Seconds for which each size is tried."""
_WARMUP_SHARE = 0.5
"""First steps that do not count: new sizes of matmuls are compiled in them."""
_SENTENCE, _SENTENCES, _DOCUMENTS = 20, 30, 300
"""Tokens of a sentence, sentences of a document, and documents of the random text."""


class _StepSpeed(NamedTuple):
    """FLOP/s and seconds of a step, or the medians of several; whether other processes compete for the cores."""

    flops: float
    seconds: float
    is_busy: bool


def measure_speed(
    recipe: Recipe,
    budget: Budget,
    machine: Machine,
    *,
    corpus_tokens: float = float("inf"),
    fixed: Collection[str] = (),
    as_published: bool = False,
    tries_larger_steps: bool = True,
) -> Speed:
    """Return how fast the machine trains a recipe fitted to a budget of time.

    The recipe is trained on random text for about four seconds; the median step counts, without skipped FLOPs. The loop
    is that of a run: the thread that prepares batches competes for the cores with the step. A teacher is left out; so
    is the table of similar words. The corpus's tokens decide on dropout; `fixed` and `as_published` are for `resolve`.
    On a GPU larger steps are tried too, some seconds each, unless the batch is fixed or not `tries_larger_steps`.
    """
    objectives = tuple(each for each in recipe.objectives if "teacher" not in each.needs)
    if not objectives:
        recipe = recipe.replace(objectives=("mlm", *recipe.objectives), replacement="mask_random_keep")
        objectives = recipe.objectives[:1]
    recipe = recipe.replace(teacher=None, objectives=objectives)
    if recipe.replacement.similar_words is not None:
        recipe = recipe.replace(replacement="mask_random_keep")
    options: dict[str, Any] = {"fixed": fixed, "as_published": as_published}

    def measure(speed: Speed, seconds: float, least_steps: int) -> tuple[Recipe, Text, float, _StepSpeed]:
        """Fit the recipe to a speed, and measure its speed; return also its text and the mean length of sequences."""
        before = resolve(recipe, budget, CorpusStatistics(chinese_share=1.0), **options, speed=speed).recipe
        text = _random_text(before.tokenizer.vocab_size)
        lengths = mean_lengths(before, text, 0)
        corpus = CorpusStatistics(chinese_share=1.0, tokens=corpus_tokens, mean_lengths=lengths)
        fitted = resolve(before, budget, corpus, **options, speed=speed).recipe
        wanted = least_steps * budget.amount / fitted.training.steps
        seconds = max(seconds, min(wanted, _MOST_SHARE * budget.amount))
        training, step_seconds = fitted.training, budget.amount / fitted.training.steps
        share = min(1.0, seconds / _STEPS_THAT_FIT / step_seconds)
        shorter = training.replace(batch_sequences=max(1, int(share * training.batch_sequences)))
        return fitted, text, lengths[0], _train_briefly(fitted.replace(training=shorter), text, machine, seconds)

    speed = Speed(_GUESSED_MFU * machine.peak_flops)
    for seconds, least_steps in _ROUNDS:
        fitted, text, length, step = measure(speed, seconds, least_steps)
        speed = Speed(step.flops, is_busy=step.is_busy)
    is_free = not (as_published or is_fixed("training.batch_sequences", fixed))
    if machine.device.type == "cuda" and tries_larger_steps and is_free:
        batch, best = _full_step(fitted, recipe.training.batch_sequences, text, machine)
        if batch > fitted.training.batch_sequences:
            # More tokens in the same time: other lengths and another vocabulary may fit.
            *_, step = measure(Speed(best.flops, batch * length), *_ROUNDS[-1])
            speed = Speed(step.flops, batch * length, step.is_busy)
    return speed


def _full_step(recipe: Recipe, most: int, text: Text, machine: Machine) -> tuple[int, _StepSpeed]:
    """Return the sequences of the largest step, up to `most`, that takes hardly longer than the recipe's; its speed."""
    first = recipe.training.phases[0].replace(share=1.0)

    def measure(batch: int) -> _StepSpeed:
        training = recipe.training.replace(phases=(first,), batch_sequences=batch)
        return _train_briefly(recipe.replace(training=training), text, machine, _TRIAL_SECONDS)

    batch = recipe.training.batch_sequences
    smallest = best = measure(batch)
    while (larger := min(most, _BATCH_GROWTH * batch)) > batch:
        step = measure(larger)
        if step.seconds > _TIME_GROWTH * smallest.seconds or step.flops <= best.flops:
            break
        batch, best = larger, step
    return batch, best


def _train_briefly(recipe: Recipe, text: Text, machine: Machine, seconds: float) -> _StepSpeed:
    """Train for some seconds; the steps of the second half count."""
    workload = build_workload(
        recipe,
        text,
        seed=0,
        held_out_tokens=0,
        tokens_per_microbatch=pretraining_microbatch(machine, recipe),
        device=machine.device,
    )
    model = build_model(recipe, text.vocab_size)
    model.initialize(0)
    model.to(machine.device).train()
    first = workload.phases[0]
    enabled = kernels_enabled()
    if machine.needs_kernel_check:
        enabled &= check_phases(model, [first], machine.autocast).passed
    schedule = Schedule(shape=recipe.training.schedule, peak=1e-4, warmup_share=0.1, clip_norm=1.0)

    def steps() -> list[_StepSpeed]:
        is_cpu = machine.device.type == "cpu"
        with contextlib.closing(SpinControl()) if is_cpu else contextlib.nullcontext() as spin_control:
            reports = train(
                model,
                build_optimizer(model.named_parameters(), recipe.training.optimizer, peak=schedule.peak),
                workload.phases,
                Position(Spent(), 0, first.sampler.start()),
                budget=Budget("seconds", seconds),
                schedule=schedule,
                flops_of=lambda batch: step_flops(recipe, text.vocab_size, batch) - skipped_flops(recipe, batch),
                autocast=machine.autocast,
            )
            return [
                _StepSpeed(each.flops / each.seconds, each.seconds, bool(spin_control and spin_control.check()))
                for each in reports
            ]

    with use_kernels(enabled):
        speeds = steps()
        if len(speeds) == 1:  # The first step of a process is no measure: it loads and compiles code.
            speeds = steps()
    is_busy = speeds[-1].is_busy
    counted = [each for each in speeds[int(_WARMUP_SHARE * len(speeds)) :] if each.is_busy == is_busy]
    flops, seconds = (statistics.median(getattr(each, name) for each in counted) for name in ("flops", "seconds"))
    return _StepSpeed(flops, seconds, is_busy)


def _random_text(vocab_size: int) -> Text:
    """Return a text in which each token is a word, a phrase and an entity."""
    random = np.random.default_rng(0)
    lengths = random.integers(1, 2 * _SENTENCE, _SENTENCES * _DOCUMENTS)
    special = SpecialTokens(
        pad=0, unk=1, cls=2, sep=3, mask=4, vocab_size=vocab_size, names=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    )
    ids = random.integers(len(special.names), vocab_size, int(lengths.sum())).astype(np.int32)

    def gather(starts: IntArray, stops: IntArray) -> AnnotatedTokens:
        chosen = ids[concatenated_ranges(starts, stops - starts)]
        words = np.ones(len(chosen), dtype=np.bool_)
        return AnnotatedTokens(chosen, words, {"phrase": words, "entity": words})

    last = np.arange(1, _DOCUMENTS + 1) * _SENTENCES
    documents = Documents(np.cumsum(lengths), last - _SENTENCES, last)
    return Text(
        documents=documents,
        sources=np.zeros(_DOCUMENTS, dtype=np.int64),
        weights=None,
        document_ends=documents.bounds(documents.last),
        gather=gather,
        vocabulary=VocabularyFacts(special_tokens=special, token_counts=np.bincount(ids, minlength=vocab_size)),
    )
