"""Stages of masking: ERNIE's levels follow one another in training, also across lengths."""

import numpy as np
import pytest
from test_batches import recipe, workload

from maskwright.pretext.masking import KnowledgeMasking
from maskwright.training.steps.workload import Workload


def ernie(*overrides: str) -> Workload:
    return workload(recipe(*overrides, name="ernie/tiny"), 256, held_out_tokens=200)


def level(masking: object) -> str:
    assert isinstance(masking, KnowledgeMasking)
    shares = {"basic": masking.basic, "phrase": masking.phrase, "entity": masking.entity}
    return "+".join(name for name, share in shares.items() if share)


def test_levels_become_phases_in_order() -> None:
    phases = ernie("masking={basic: 0.5, phrase: 0.25, entity: 0.25}").phases
    stages = [(phase.until, level(phase.collator.masking)) for phase in phases]
    assert stages == [(0.5, "basic"), (0.75, "phrase"), (1.0, "entity")]


def test_levels_and_lengths_are_cut_where_either_changes() -> None:
    lengths = 'training.phases=[{"share": 0.9, "max_length": 32}, {"share": 0.1, "max_length": 64}]'
    phases = ernie(lengths).phases
    stages = [(phase.until, level(phase.collator.masking), phase.collator.max_length) for phase in phases]
    assert stages == [
        (pytest.approx(1 / 3), "basic", 32),
        (pytest.approx(2 / 3), "phrase", 32),
        (0.9, "entity", 32),
        (1.0, "entity", 64),
    ]


def test_mixed_levels_are_one_phase() -> None:
    (phase,) = ernie("masking.order=mixed").phases
    assert (phase.until, level(phase.collator.masking)) == (1.0, "basic+phrase+entity")


def test_every_stage_and_the_held_out_text_ask_for_something_in_single_sequences() -> None:
    built = ernie("objectives=[mlm]")
    for phase in built.phases:
        rows, _ = phase.sampler.read(phase.sampler.start(), 60)
        for row in range(60):
            assert phase.collator.collate(rows.part(np.array([row])), step=0).counts["mlm"] >= 1
    assert sum(batch.counts["mlm"] for batch in built.held_out) > 0
