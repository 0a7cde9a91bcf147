import pytest
import torch
from flat_batches import packed, without_filler

from maskwright.model import attention_plan
from maskwright.model.attention_plan import (
    choose_backend,
    most_pairs,
    plan_attention,
    run_offsets,
    share_of_pairs,
)
from maskwright.model.native import attention
from maskwright.model.native.attention import multiplies_pairs

FULL = ((24,), (24,))


def test_no_mask_is_made_when_every_row_is_one_full_sequence():
    assert plan_attention(packed(FULL, 24), "rows", torch.float32).mask is None
    assert plan_attention(packed(((23,), (24,)), 24), "rows", torch.float32).mask is not None
    assert plan_attention(packed(((12, 12),), 24), "rows", torch.float32).mask is not None


def test_run_offsets_end_runs_at_row_ends():
    offsets = run_offsets(torch.tensor([0, 0, 1, -1, -1, -1, 2, 2]), row_length=4)
    assert offsets.tolist() == [0, 2, 3, 4, 6, 8]


@pytest.mark.parametrize(
    ("row_length", "device", "dtype", "drops", "expected"),
    [
        (128, "cpu", torch.float32, False, "rows"),
        (512, "cpu", torch.float32, False, "sdpa"),
        (512, "cpu", torch.float32, True, "rows"),
        (128, "cuda", torch.bfloat16, True, "jagged"),
        (128, "cuda", torch.float32, True, "sdpa"),
    ],
)
def test_backend_is_chosen_by_what_can_be_done_fastest(row_length, device, dtype, drops, expected):
    assert choose_backend(row_length, device, dtype, drops=drops, head_size=24) == expected
    if device == "cuda":
        assert choose_backend(row_length, device, dtype, drops=drops, head_size=64) == expected


@pytest.mark.parametrize(
    ("row_length", "dtype", "drops", "pairs", "multiplies", "expected"),
    [
        (128, torch.float32, True, 1.0, False, "native"),
        (512, torch.float32, False, 1.0, False, "native"),
        (128, torch.bfloat16, True, 0.8, False, "native"),
        (128, torch.bfloat16, True, 1.0, False, "rows"),
        (128, torch.bfloat16, True, 1.0, True, "native"),
        (128, torch.bfloat16, False, 0.6, False, "native"),
        (128, torch.bfloat16, False, 0.8, False, "rows"),
        (128, torch.bfloat16, False, 0.8, True, "native"),
        (128, torch.bfloat16, False, 0.95, True, "rows"),
        (512, torch.bfloat16, False, 1.0, False, "native"),
        (128, torch.float64, False, 0.1, True, "rows"),
    ],
)
def test_our_own_code_is_chosen_where_it_is_faster(row_length, dtype, drops, pairs, multiplies, expected, monkeypatch):
    monkeypatch.setattr(attention_plan, "multiplies_pairs", lambda size: multiplies)
    monkeypatch.setattr(attention_plan, "takes", lambda size, device, dtype: dtype != torch.float64)
    chosen = choose_backend(row_length, "cpu", dtype, drops=drops, head_size=64, pairs=pairs)
    assert chosen == expected


def test_share_of_pairs_counts_those_of_one_sequence():
    assert share_of_pairs(packed(FULL, 24), 0.9) == 1.0
    # Runs of 12, 12 and 6; filler is nobody's.
    runs = packed(((12, 12), (6,)), 24)
    assert share_of_pairs(without_filler(runs, 3), 0.9) == share_of_pairs(runs, 0.9)
    assert share_of_pairs(runs, 0.9) == (12**2 + 12**2 + 6**2) / (2 * 24**2)
    assert share_of_pairs(runs, 1.0) == 1.0


@pytest.mark.parametrize("has", [False, True])
def test_pairs_are_multiplied_where_the_processor_can_for_heads_of_whole_registers_of_them(has, monkeypatch):
    monkeypatch.setattr(attention, "has_bf16", lambda: has)
    assert [size for size in (16, 32, 48, 64, 80, 96) if multiplies_pairs(size)] == ([32, 64, 96] if has else [])
    assert most_pairs(torch.bfloat16, 64, drops=True) == (1.0 if has else 0.85)
    assert most_pairs(torch.float32, 64, drops=False) == 1.0
