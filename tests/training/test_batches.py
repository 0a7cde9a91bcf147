"""Batches: what a step computes on is the text itself, whatever way it is packed and cut."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
import torch

from maskwright.core.row_counts import rounded_up
from maskwright.core.similar_words import SimilarWords, word_hashes
from maskwright.core.types import BoolArray, Documents, IntArray, SpecialTokens, TakenTokens
from maskwright.pretext.replacement.base import VocabularyFacts
from maskwright.recipes.catalog import resolve
from maskwright.recipes.recipe import Recipe
from maskwright.training.batches import MicroBatch, StepBatch
from maskwright.training.workload import Text, Workload, build_workload

VOCABULARY = 500
NAMES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SPECIAL = SpecialTokens(pad=0, unk=1, cls=2, sep=3, mask=4, vocab_size=VOCABULARY, names=NAMES)


def toy_text(documents: int = 80) -> Text:
    draw = np.random.default_rng(0)
    sentences = draw.integers(2, 9, documents)
    lengths = draw.integers(3, 12, int(sentences.sum()))
    ends, last = np.cumsum(lengths), np.cumsum(sentences)
    ids = draw.integers(5, VOCABULARY, int(ends[-1])).astype(np.int32)
    # Words have one token and more; some neighbouring words of a sentence are a phrase, some phrases an entity.
    first = np.zeros(len(ids), dtype=bool)
    first[np.append(0, ends[:-1])] = True
    words = first | (np.random.default_rng(3).random(len(ids)) < 0.6)
    phrases = first | (words & (np.random.default_rng(1).random(len(ids)) < 0.7))
    entities = first | (phrases & (np.random.default_rng(2).random(len(ids)) < 0.8))

    def take(starts: IntArray, stops: IntArray) -> TakenTokens:
        ranges = [np.arange(start, stop) for start, stop in zip(starts, stops, strict=True)]
        places = np.concatenate(ranges) if ranges else np.zeros(0, dtype=np.int64)
        levels = {"phrase": phrases[places], "entity": entities[places]}
        return TakenTokens(ids[places], words[places], levels)

    docs = Documents(ends, last - sentences, last)
    return Text(
        documents=docs,
        sources=np.zeros(documents, dtype=np.int64),
        weights=None,
        document_ends=docs.bounds(docs.last),
        take=take,
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
        word: [group[(place + step) % len(group)] for step in (1, 2) if step < len(group)]
        for group in by_length
        for place, word in enumerate(group)
    }
    known = [word for word, others in similar.items() if others]
    lengths = np.array([len(word) for word in known])
    counts = np.array([len(similar[word]) for word in known])
    hashes = word_hashes(np.concatenate(known), np.cumsum(lengths) - lengths)
    order = np.argsort(hashes)
    candidates = [token for word in known for other in similar[word] for token in other]
    sizes = np.array([length * len(group) for length, group in enumerate(by_length)])
    return SimilarWords(
        ids=np.array(candidates + [token for group in by_length for word in group for token in word], dtype=np.int32),
        hashes=hashes[order],
        lengths=lengths[order],
        firsts=(np.cumsum(counts * lengths) - counts * lengths)[order],
        counts=counts[order],
        random_firsts=len(candidates) + np.cumsum(sizes) - sizes,
        random_counts=np.array([len(group) for group in by_length]),
        similarities=np.ones(int(counts.sum()), dtype=np.float32),
    )


def recipe(*overrides: str) -> Recipe:
    phases = 'training.phases=[{"share": 1.0, "max_length": 32}]'
    return resolve("bert/tiny", [f"tokenizer.vocab_size={VOCABULARY}", phases, *overrides])


def workload(which: Recipe, tokens_per_microbatch: int = 128) -> Workload:
    return build_workload(which, toy_text(), seed=3, held_out_tokens=100, tokens_per_microbatch=tokens_per_microbatch)


def step(which: Recipe, tokens_per_microbatch: int = 128, count: int = 40) -> StepBatch:
    phase = workload(which, tokens_per_microbatch).phases[0]
    rows, _ = phase.stream.read(phase.stream.start(), count)
    return phase.collator.collate(rows, step=0)


def sequences(micro: MicroBatch) -> list[tuple[int, ...]]:
    batch = micro.batch
    return [tuple(batch.ids[batch.sequence_ids == number].tolist()) for number in range(len(batch.first_tokens))]


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
def test_micro_batches_are_as_few_and_as_equal_as_the_limit_allows(tokens_per_microbatch: int) -> None:
    batch = step(recipe(), tokens_per_microbatch)
    row_length = batch.micro_batches[0].batch.row_length
    assert row_length is not None
    rows = [len(rows_of(m)) for m in batch.micro_batches]
    rows_at_once = max(1, tokens_per_microbatch // row_length)
    assert len(rows) == -(-sum(rows) // rows_at_once)
    assert max(rows) <= rows_at_once
    assert max(rows) - min(rows) <= 1


def rows_of(micro: MicroBatch) -> list[list[int]]:
    """The sequence number of each slot of each row, -1 at filler, up to the last row that is begun."""
    batch = micro.batch
    assert batch.row_length is not None
    assert batch.row_slots is not None
    numbers = [-1] * (batch.row_length * (int(batch.row_slots[-1]) // batch.row_length + 1))
    for slot, number in zip(batch.row_slots.tolist(), batch.sequence_ids.tolist(), strict=False):
        numbers[slot] = number
    return [numbers[first : first + batch.row_length] for first in range(0, len(numbers), batch.row_length)]


def test_every_slot_belongs_to_one_sequence_or_is_filler() -> None:
    for micro in step(recipe()).micro_batches:
        batch = micro.batch
        filler = batch.sequence_ids < 0
        assert (batch.ids[filler] == SPECIAL.pad).all()
        assert int((~filler).sum()) == batch.num_tokens
        assert (batch.ids[batch.first_tokens] == SPECIAL.cls).all()
        assert (batch.position_ids[batch.first_tokens] == 0).all()
        # What fills up lies behind the last token, and less than it takes to be of any use.
        assert not filler[: batch.num_tokens].any()
        assert len(batch.ids) == rounded_up(batch.num_tokens)
        assert batch.row_length == 32
        seen = [(number, list(group)) for row in rows_of(micro) for number, group in itertools.groupby(row)]
        runs = [(number, len(group)) for number, group in seen if number >= 0]
        # A sequence lies in one piece, and within one row.
        assert [number for number, _ in runs] == list(range(len(batch.first_tokens)))
        assert [length for _, length in runs] == torch.bincount(batch.sequence_ids[~filler]).tolist()


def test_targets_ask_for_what_was_hidden_there() -> None:
    # With everything replaced by [MASK], a target's position must hold [MASK], and labels must be ordinary tokens.
    batch = step(recipe("replacement.mask=1.0", "replacement.random=0.0", "replacement.keep=0.0"))
    for micro in batch.micro_batches:
        wanted = micro.targets["mlm"]
        assert (micro.batch.ids[wanted.positions] == SPECIAL.mask).all()
        assert int((micro.batch.ids == SPECIAL.mask).sum()) == len(wanted.labels)
        assert (wanted.labels > SPECIAL.mask).all()
        pairs = micro.targets["nsp"]
        assert pairs.positions.tolist() == list(range(len(micro.batch.first_tokens)))


def test_a_step_counts_real_tokens_only() -> None:
    batch = step(recipe())
    real = sum(int((m.batch.sequence_ids >= 0).sum()) for m in batch.micro_batches)
    slots = sum(len(m.batch.ids) for m in batch.micro_batches)
    assert (batch.num_tokens, batch.num_slots, batch.num_sequences) == (real, slots, 40)


def masks_by_epoch(which: Recipe) -> dict[int, dict[int, tuple[int, ...]]]:
    """Corrupted ids of every instance in two epochs."""
    phase = workload(which).phases[0]
    seen: dict[int, dict[int, tuple[int, ...]]] = defaultdict(dict)
    cursor = phase.stream.start()
    while cursor.places[0].epoch < 2:
        epoch = cursor.places[0].epoch
        rows, cursor = phase.stream.read(cursor, 1)
        (micro,) = phase.collator.collate(rows, step=0).micro_batches
        seen[epoch][int(rows.index[0])] = sequences(micro)[0]
    return seen


@pytest.mark.parametrize(
    "masking",
    [
        *("token", "whole_word", "ngram", "span", "levels", "pmi"),
        "{kind: whole_word, budget: words}",
        "{kind: ngram, budget: words, order: left_to_right}",
    ],
)
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


def test_held_out_batches_are_the_same_every_time_and_apart_from_training() -> None:
    first, second = workload(recipe()), workload(recipe())
    assert first.held_out
    for one, other in zip(first.held_out, second.held_out, strict=True):
        for a, b in zip(one.micro_batches, other.micro_batches, strict=True):
            assert a.batch.ids.equal(b.batch.ids)
            assert a.batch.dropout_key is None


def test_dropout_keys_differ_between_steps_and_micro_batches() -> None:
    phase = workload(recipe(), 32).phases[0]
    rows, _ = phase.stream.read(phase.stream.start(), 20)
    keys = [m.batch.dropout_key for number in (0, 1) for m in phase.collator.collate(rows, number).micro_batches]
    assert None not in keys
    assert len(set(keys)) == len(keys)
