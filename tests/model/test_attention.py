"""Attention backends in a whole encoder: the same results and gradients, and no attention between sequences."""

from dataclasses import replace

import pytest
import torch
from flat_batches import PACKED, SMALL, encoder, packed

WHOLE_HEADS = SMALL.replace(hidden_size=32, num_heads=2)
FULL = (24, 24)


def _run(backend, batch, config=SMALL):
    model = encoder(config, backend)
    output = model(batch)
    assert output.hidden.isfinite().all()
    (output.hidden**3).mean().backward()
    return output.hidden.detach(), output.pooled.detach(), {n: p.grad for n, p in model.named_parameters()}


def _assert_same(found, expected):
    torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(found[1], expected[1], atol=1e-5, rtol=0)
    for name, gradient in expected[2].items():
        if gradient is not None:
            torch.testing.assert_close(found[2][name], gradient, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("backend", ["rows", "sdpa", "jagged"])
@pytest.mark.parametrize("lengths", [PACKED, FULL], ids=["packed", "full rows"])
def test_backends_agree_with_the_reference(backend, lengths):
    batch = packed(lengths)
    _assert_same(_run(backend, batch), _run("reference", batch))


@pytest.mark.parametrize("backend", ["rows", "sdpa", "reference"])
def test_an_empty_batch_gives_nothing(backend):
    empty = torch.zeros(0, dtype=torch.int64)
    batch = replace(
        packed(), ids=empty, position_ids=empty, segment_ids=empty, cu_seqlens=torch.zeros(1, dtype=torch.int32)
    )
    assert encoder(WHOLE_HEADS, backend)(batch).hidden.shape == (0, 32)


@pytest.mark.parametrize("backend", ["rows", "sdpa"])
def test_an_upper_bound_of_the_lengths_gives_the_same(backend):
    _assert_same(_run(backend, packed(max_seqlen=31)), _run(backend, packed()))


def test_changing_one_sequence_changes_no_other():
    batch = packed()
    model = encoder()
    owners = torch.repeat_interleave(torch.arange(batch.num_sequences), batch.lengths)
    changed = replace(batch, ids=torch.where(owners == 1, 6, batch.ids))
    differs = (model(batch).hidden != model(changed).hidden).any(dim=1)
    assert torch.equal(differs, owners == 1)


def test_rows_drop_what_the_reference_drops():
    batch = packed(key=99)
    dropped = _run("rows", batch)
    _assert_same(dropped, _run("reference", batch))
    assert (dropped[0] - _run("rows", packed())[0]).abs().max() > 0.1


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("backend", ["sdpa", "jagged"])
def test_fused_kernels_drop_by_the_key_and_put_the_generator_back(backend):
    config = SMALL.replace(hidden_dropout=0.0, attention_dropout=0.3)
    model = encoder(config, backend)
    before = torch.get_rng_state()
    with torch.no_grad():
        first, again, other, none = (model(packed(key=key)).hidden for key in (5, 5, 6, None))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, atol=1e-2)
    assert not torch.allclose(first, none, atol=1e-2)


def test_a_model_in_fp64_stays_in_it_under_autocast():
    model, batch = encoder(WHOLE_HEADS).double(), packed()
    expected = model(batch).hidden
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(model(batch).hidden, expected)
