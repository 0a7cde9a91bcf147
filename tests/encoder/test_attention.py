from dataclasses import replace

import pytest
import torch
from flat_batches import PACKED, SMALL, encoder, packed

from maskwright.encoder.attention import choose_backend, plan_attention, run_offsets

ONE_A_ROW = tuple((length,) for row in PACKED for length in row)
FULL = ((24,), (24,))


def _run(backend, batch, config=SMALL):
    model = encoder(config, backend)
    output = model(batch)
    real = batch.sequence_ids >= 0
    assert output.hidden.isfinite().all()
    (output.hidden[real] ** 3).mean().backward()
    return (
        output.hidden[real].detach(),
        output.pooled.detach(),
        {n: p.grad for n, p in model.named_parameters()},
    )


def _assert_same(found, expected):
    torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(found[1], expected[1], atol=1e-5, rtol=0)
    for name, gradient in expected[2].items():
        if gradient is not None:
            torch.testing.assert_close(found[2][name], gradient, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("backend", ["rows", "sdpa", "jagged"])
@pytest.mark.parametrize("rows", [PACKED, ONE_A_ROW, FULL], ids=["packed", "one a row", "full rows"])
def test_backends_agree_with_the_reference(backend, rows):
    batch = packed(rows, 24)
    _assert_same(_run(backend, batch), _run("reference", batch))


@pytest.mark.parametrize("backend", ["rows", "sdpa"])
def test_sequences_packed_into_a_row_never_attend_to_each_other(backend):
    _assert_same(_run(backend, packed(PACKED, 24)), _run(backend, packed(ONE_A_ROW, 24)))


@pytest.mark.parametrize("backend", ["rows", "sdpa"])
def test_a_stream_that_is_not_cut_into_rows_gives_the_same(backend):
    _assert_same(_run(backend, packed(PACKED, None)), _run(backend, packed(PACKED, 24)))


def test_changing_one_sequence_changes_no_other():
    batch = packed(PACKED, 24)
    model = encoder()
    changed = replace(batch, ids=torch.where(batch.sequence_ids == 1, 6, batch.ids))
    differs = (model(batch).hidden != model(changed).hidden).any(dim=1)
    assert torch.equal(differs, batch.sequence_ids == 1)


def test_rows_drop_what_the_reference_drops():
    batch = packed(PACKED, 24, key=99)
    dropped = _run("rows", batch)
    _assert_same(dropped, _run("reference", batch))
    assert (dropped[0] - _run("rows", packed(PACKED, 24))[0]).abs().max() > 0.1


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("backend", ["sdpa", "jagged"])
def test_fused_kernels_drop_by_the_key_and_put_the_generator_back(backend):
    config = SMALL.replace(hidden_dropout=0.0, attention_dropout=0.3)
    model = encoder(config, backend)
    before = torch.get_rng_state()
    with torch.no_grad():
        first, again, other, none = (model(packed(PACKED, 24, key=key)).hidden for key in (5, 5, 6, None))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, atol=1e-2)
    assert not torch.allclose(first, none, atol=1e-2)


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
    assert choose_backend(row_length, device, dtype, drops=drops) == expected
