from dataclasses import replace

import torch
from packed_batches import SMALL, encoder, packed

from maskwright.kernels.setting import use_kernels


def test_dropout_follows_the_batch_key_and_only_in_training():
    model = encoder()
    first, again, other = (model(packed(key=key)).hidden for key in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, atol=1e-2)
    plain = model(packed()).hidden
    assert not torch.allclose(first, plain, atol=1e-2)
    model.eval()
    assert torch.equal(model(packed(key=1)).hidden, plain)


def test_a_single_segment_row_is_added_whatever_the_segment():
    batch = packed()
    one = encoder(SMALL.replace(type_vocab_size=1))
    assert torch.equal(one(batch).hidden, one(replace(batch, segment_ids=batch.segment_ids * 0)).hidden)
    without = encoder(SMALL.replace(type_vocab_size=0, pooler=False))
    assert without.segment_embeddings is None
    assert without(batch).pooled is None


def test_the_reference_gives_the_same_results_and_gradients():
    outcomes = []
    for enabled in (True, False):
        model = encoder(SMALL.replace(num_heads=3))  # Heads of 16, which the C attention computes.
        with use_kernels(enabled):
            output = model(packed())
        (output.hidden**3).mean().backward()
        outcomes.append((output.hidden.detach(), output.pooled.detach(), [p.grad for p in model.parameters()]))
    (hidden, pooled, gradients), (expected, expected_pooled, expected_gradients) = outcomes
    torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(pooled, expected_pooled, atol=1e-5, rtol=0)
    for actual, wanted in zip(gradients, expected_gradients, strict=True):
        assert wanted is None or torch.allclose(actual, wanted, atol=1e-5, rtol=1e-4)


def test_changing_one_sequence_changes_no_other():
    batch = packed()
    model = encoder()
    owners = torch.repeat_interleave(torch.arange(batch.num_sequences), batch.lengths)
    changed = replace(batch, ids=torch.where(owners == 1, 6, batch.ids))
    differs = (model(batch).hidden != model(changed).hidden).any(dim=1)
    assert torch.equal(differs, owners == 1)
