from dataclasses import replace

import pytest
import torch
from flat_batches import PACKED, SMALL, encoder, packed, without_filler

WHOLE_HEADS = SMALL.replace(hidden_size=32, num_heads=2)
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


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("backend", ["rows", "sdpa", "jagged", "reference"])
@pytest.mark.parametrize("rows", [PACKED, ONE_A_ROW, FULL], ids=["packed", "one a row", "full rows"])
@pytest.mark.parametrize(
    # PACKED has 91 tokens in rows of 96 slots: with five behind them the stream is as long as its rows, and is none.
    "behind",
    [0, 5, 30],
    ids=["nothing behind", "as long as the rows", "more than a row behind"],
)
def test_a_stream_without_the_filler_of_its_rows_gives_the_same(backend, rows, behind):
    batch = packed(rows, 24)
    found = _run(backend, without_filler(batch, behind), WHOLE_HEADS)
    _assert_same(found, _run("reference", batch, WHOLE_HEADS))


@pytest.mark.parametrize("backend", ["rows", "reference"])
@pytest.mark.parametrize("behind", [0, 3, 5])
def test_attention_drops_by_the_place_in_a_row_whether_or_not_filler_is_there(backend, behind):
    config = WHOLE_HEADS.replace(hidden_dropout=0.0, attention_dropout=0.3)
    batch = packed(PACKED, 24, key=99)
    _assert_same(_run(backend, without_filler(batch, behind), config), _run("rows", batch, config))


@pytest.mark.parametrize("backend", ["rows"])
def test_all_of_dropout_is_the_same_for_a_stream_without_filler(backend):
    batch = without_filler(packed(PACKED, 24, key=99), behind=3)
    _assert_same(_run(backend, batch, WHOLE_HEADS), _run("reference", batch, WHOLE_HEADS))


@pytest.mark.parametrize("backend", ["rows", "sdpa", "reference"])
def test_an_empty_stream_without_filler_gives_nothing(backend):
    empty = torch.zeros(0, dtype=torch.int64)
    batch = replace(
        packed(((24,),), 24),
        **dict.fromkeys(["ids", "position_ids", "segment_ids", "sequence_ids", "first_tokens", "row_slots"], empty),
        num_rows=0,
        num_tokens=0,
    )
    assert encoder(WHOLE_HEADS, backend)(batch).hidden.shape == (0, 32)


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


def test_a_model_in_fp64_stays_in_it_under_autocast():
    model, batch = encoder(WHOLE_HEADS).double(), packed(PACKED, 24)
    expected = model(batch).hidden
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(model(batch).hidden, expected)
