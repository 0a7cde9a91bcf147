"""Batches: what a step computes on is the text itself, whatever way it is packed and cut."""

import itertools
from collections import defaultdict
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.fields import kinds
from maskwright.core.similar_words import SimilarWords
from maskwright.core.types import AnnotatedTokens, BoolArray, Documents, IntArray, SpecialTokens
from maskwright.pretext.masking import MaskingChoice
from maskwright.pretext.replacement.base import VocabularyFacts
from maskwright.recipes.catalog import resolve
from maskwright.recipes.recipe import Recipe
from maskwright.training.steps.batches import MicroBatch, StepBatch, even_bounds
from maskwright.training.steps.text import Text
from maskwright.training.steps.transfer import map_tensors
from maskwright.training.steps.workload import Workload, build_workload
from tests.pretext.similar_tables import table_of

VOCABULARY = 500
NAMES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SPECIAL = SpecialTokens(pad=0, unk=1, cls=2, sep=3, mask=4, vocab_size=VOCABULARY, names=NAMES)


@cache
def toy_text(documents: int = 80) -> Text:
    draw = np.random.default_rng(0)
    sentences = draw.integers(2, 9, documents)
    lengths = draw.integers(3, 12, int(sentences.sum()))
    ends, last = np.cumsum(lengths), np.cumsum(sentences)
    ids = draw.integers(5, VOCABULARY, int(ends[-1])).astype(np.int32)
    # Words have one token and more; some neighboring words of a sentence are a phrase, some phrases an entity.
    first = np.zeros(len(ids), dtype=bool)
    first[np.append(0, ends[:-1])] = True
    words = first | (np.random.default_rng(3).random(len(ids)) < 0.6)
    phrases = first | (words & (np.random.default_rng(1).random(len(ids)) < 0.7))
    entities = first | (phrases & (np.random.default_rng(2).random(len(ids)) < 0.8))

    def gather(starts: IntArray, stops: IntArray) -> AnnotatedTokens:
        ranges = [np.arange(start, stop) for start, stop in zip(starts, stops, strict=True)]
        positions = np.concatenate(ranges) if ranges else np.zeros(0, dtype=np.int64)
        levels = {"phrase": phrases[positions], "entity": entities[positions]}
        return AnnotatedTokens(ids[positions], words[positions], levels)

    docs = Documents(ends, last - sentences, last)
    return Text(
        documents=docs,
        sources=np.zeros(documents, dtype=np.int64),
        weights=None,
        document_ends=docs.bounds(docs.last),
        gather=gather,
        vocabulary=VocabularyFacts(
            special_tokens=SPECIAL,
            token_counts=np.bincount(ids, minlength=VOCABULARY),
            similar_words=toy_similar_words({(token,) for token in range(5, VOCABULARY)} | written(ids, words)),
        ),
    )


def written(ids: IntArray, words: BoolArray) -> set[tuple[int, ...]]:
    return {tuple(word.tolist()) for word in np.split(ids, np.flatnonzero(words)[1:])}


def toy_similar_words(words: set[tuple[int, ...]]) -> SimilarWords:
    """Each word is similar to the next two of as many tokens, where there are any; random words are all of them."""
    by_length = [sorted(word for word in words if len(word) == length) for length in range(1 + max(map(len, words)))]
    similar = {
        word: [group[(index + step) % len(group)] for step in (1, 2) if step < len(group)]
        for group in by_length
        for index, word in enumerate(group)
    }
    return table_of({word: others for word, others in similar.items() if others}, sorted(words))


def recipe(*overrides: str, name: str = "bert/tiny") -> Recipe:
    phases = 'training.phases=[{"share": 1.0, "max_length": 32}]'
    return resolve(name, [f"tokenizer.vocab_size={VOCABULARY}", phases, *overrides])


def workload(which: Recipe, tokens_per_microbatch: int = 128, documents: int = 80, **changes: Any) -> Workload:
    settings = {"seed": 3, "held_out_tokens": 100, "tokens_per_microbatch": tokens_per_microbatch}
    return build_workload(which, toy_text(documents), **{**settings, **changes})


def step(which: Recipe, tokens_per_microbatch: int = 128, count: int = 40) -> StepBatch:
    phase = workload(which, tokens_per_microbatch).phases[0]
    rows, _ = phase.sampler.read(phase.sampler.start(), count)
    return phase.collator.collate(rows, step=0)


def sequences(micro: MicroBatch) -> list[tuple[int, ...]]:
    bounds = itertools.pairwise(micro.batch.cu_seqlens.tolist())
    return [tuple(micro.batch.ids[begin:end].tolist()) for begin, end in bounds]


@pytest.mark.parametrize("tokens_per_microbatch", [1, 64, 100, 4096])
def test_cutting_into_micro_batches_changes_no_sequence_and_no_target(tokens_per_microbatch: int) -> None:
    whole, cut = step(recipe(), 1 << 20), step(recipe(), tokens_per_microbatch)
    assert len(whole.micro_batches) == 1
    assert sorted(s for m in whole.micro_batches for s in sequences(m)) == sorted(
        s for m in cut.micro_batches for s in sequences(m)
    )
    assert whole.counts == cut.counts
    for kind, count in whole.counts.items():
        labels = [m.targets[kind].labels.tolist() for m in cut.micro_batches]
        assert [label for part in labels for label in part] == whole.micro_batches[0].targets[kind].labels.tolist()
        assert sum(map(len, labels)) == count


@pytest.mark.parametrize("tokens_per_microbatch", [1, 64, 100, 300, 4096])
def test_micro_batches_are_few_and_of_about_equal_size(tokens_per_microbatch: int) -> None:
    sizes = [micro.batch.num_tokens for micro in step(recipe(), tokens_per_microbatch).micro_batches]
    assert max(sizes) <= max(tokens_per_microbatch, 32)
    assert max(sizes) - min(sizes) <= 2 * 32
    assert len(sizes) <= -(-sum(sizes) // max(1, tokens_per_microbatch - 32))


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=40), limit=st.integers(1, 200))
def test_bounds_cut_between_sequences_and_below_the_limit(lengths: list[int], limit: int) -> None:
    cu_seqlens = np.append(0, np.cumsum(lengths))
    bounds = even_bounds(cu_seqlens, limit)
    assert (bounds[0], bounds[-1]) == (0, len(lengths))
    assert (np.diff(bounds) > 0).all()
    for first, last in itertools.pairwise(bounds):
        assert cu_seqlens[last] - cu_seqlens[first] <= limit or last == first + 1


def test_a_sequence_above_the_limit_leaves_the_others_together() -> None:
    lengths = [10] * 8 + [101] + [10] * 12 + [200]
    bounds = even_bounds(np.append(0, np.cumsum(lengths)), 100)
    assert bounds.tolist() == [0, 8, 9, 15, 21, 22]


def test_sequences_lie_one_behind_the_other_without_padding_and_are_counted() -> None:
    whole = step(recipe())
    assert whole.num_tokens == sum(len(micro.batch.ids) for micro in whole.micro_batches)
    assert whole.num_sequences == sum(micro.batch.num_sequences for micro in whole.micro_batches) == 40
    for micro in whole.micro_batches:
        batch = micro.batch
        lengths = batch.lengths.tolist()
        assert batch.cu_seqlens.dtype == torch.int32
        assert int(batch.cu_seqlens[-1]) == batch.num_tokens == len(batch.segment_ids)
        assert 0 < min(lengths) <= max(lengths) <= batch.max_seqlen == 32
        assert (batch.ids[batch.first_tokens] == SPECIAL.cls).all()
        assert not (batch.ids == SPECIAL.pad).any()
        assert batch.position_ids.tolist() == [position for length in lengths for position in range(length)]


def test_targets_are_at_masked_positions() -> None:
    # With everything replaced by [MASK], a target's position must hold [MASK], and labels must be ordinary tokens.
    batch = step(recipe("replacement.mask=1.0", "replacement.random=0.0", "replacement.keep=0.0"))
    for micro in batch.micro_batches:
        wanted = micro.targets["mlm"]
        assert (micro.batch.ids[wanted.positions] == SPECIAL.mask).all()
        assert int((micro.batch.ids == SPECIAL.mask).sum()) == len(wanted.labels)
        assert (wanted.labels > SPECIAL.mask).all()
        pairs = micro.targets["nsp"]
        assert pairs.positions.tolist() == list(range(micro.batch.num_sequences))


def masks_by_epoch(which: Recipe) -> dict[int, dict[int, tuple[int, ...]]]:
    """Corrupted ids of every instance in two epochs."""
    phase = workload(which, documents=24).phases[0]
    seen: dict[int, dict[int, tuple[int, ...]]] = defaultdict(dict)
    cursor = phase.sampler.start()
    while cursor.positions[0].epoch < 2:
        epoch = cursor.positions[0].epoch
        rows, cursor = phase.sampler.read(cursor, 1)
        (micro,) = phase.collator.collate(rows, step=0).micro_batches
        seen[epoch][int(rows.index[0])] = sequences(micro)[0]
    return seen


@pytest.mark.parametrize("masking", [*kinds(MaskingChoice), "{kind: ngram, budget: words, order: left_to_right}"])
def test_static_masks_agree_between_epochs_and_dynamic_ones_differ(masking: str) -> None:
    words = "words={segmenter: rjieba, phrases: [segmenter], entities: [tags]}"
    same_layout = ("format=full_sentences", "objectives=[mlm]", f"masking={masking}", words)
    static = masks_by_epoch(recipe(*same_layout, "masks.copies=1"))
    dynamic = masks_by_epoch(recipe(*same_layout, "masks.copies=null"))
    assert static[0] == static[1]
    assert static[0] == dynamic[0]  # The first drawing is the same one.
    assert dynamic[0].keys() == dynamic[1].keys()
    differing = sum(dynamic[0][index] != dynamic[1][index] for index in dynamic[0])
    assert differing > 0.9 * len(dynamic[0])


@pytest.mark.parametrize(
    ("overrides", "ranks", "count"),
    [
        ((), 2, 40),
        (("format=full_sentences", "objectives=[mlm, {kind: sbo}]", "masking=span"), 3, 40),
        ((), 16, 7),
        ((), 64, 512),
    ],
)
def test_the_shares_of_the_ranks_are_the_micro_batches_of_one_process(overrides, ranks, count):
    phase = workload(recipe(*overrides)).phases[0]
    rows, _ = phase.sampler.read(phase.sampler.start(), count)
    read = [0]

    def gather(starts: IntArray, stops: IntArray) -> AnnotatedTokens:
        read[0] += int((stops - starts).sum())
        return phase.collator.gather(starts, stops)

    collator = replace(phase.collator, ranks=ranks, gather=gather)
    whole = collator.collate(rows, step=5)
    text, read[0] = read[0], 0
    shares = [collator.collate(rows, 5, slice(rank, None, ranks)) for rank in range(ranks)]
    assert read[0] == text, "each rank reads its own text only"
    assert [share.num_tokens for share in shares] == [whole.num_tokens] * ranks
    assert {kind: sum(share.counts[kind] for share in shares) for kind in whole.counts} == whole.counts
    for rank, share in enumerate(shares):
        assert list(map(content, share.micro_batches)) == list(map(content, whole.micro_batches[rank::ranks]))
    if count > ranks:
        tokens = [sum(micro.batch.num_tokens for micro in share.micro_batches) for share in shares]
        most = sum(micro.batch.num_tokens for micro in whole.micro_batches) / ranks
        per_rank = -(-len(whole.micro_batches) // ranks)
        assert max(tokens) - most <= 32 * per_rank, "shares differ by less than a sequence in each micro-batch"


def content(micro: MicroBatch) -> list[object]:
    actual: list[object] = [micro.batch.dropout_key]
    map_tensors(micro, lambda tensor: actual.append(tensor.tolist()))
    return actual


def test_held_out_batches_are_deterministic_and_disjoint_from_training() -> None:
    first, second = workload(recipe()), workload(recipe())
    assert first.held_out
    for one, other in zip(first.held_out, second.held_out, strict=True):
        assert list(map(content, one.micro_batches)) == list(map(content, other.micro_batches))
        assert {micro.batch.dropout_key for micro in one.micro_batches} == {None}


def test_dropout_keys_differ_between_steps_and_micro_batches() -> None:
    phase = workload(recipe(), 32).phases[0]
    rows, _ = phase.sampler.read(phase.sampler.start(), 20)
    keys = [m.batch.dropout_key for number in (0, 1) for m in phase.collator.collate(rows, number).micro_batches]
    assert None not in keys
    assert len(set(keys)) == len(keys)
