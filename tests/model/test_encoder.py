from dataclasses import replace

import torch
from packed_batches import SMALL, VOCAB_SIZE, encoder, packed


def test_dropout_follows_the_batch_key_and_only_in_training():
    model = encoder()
    first, again, other = (model(packed(key=key)).hidden for key in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, atol=1e-2)
    plain = model(packed()).hidden
    assert not torch.allclose(first, plain, atol=1e-2)
    model.eval()
    assert torch.equal(model(packed(key=1)).hidden, plain)


def test_layers_that_share_blocks_compute_what_equal_layers_compute():
    shared = encoder(SMALL.replace(sharing="attention", num_groups=2))
    assert len(shared.attention_blocks) == 2
    assert len(shared.ffn_blocks) == 3
    apart = encoder(SMALL)
    state = apart.state_dict()
    for name, value in shared.state_dict().items():
        for layer in range(3):
            block = {"attention_blocks": (0, 0, 1), "ffn_blocks": (0, 1, 2)}.get(name.split(".")[0], (None,) * 3)[layer]
            stem, _, rest = name.partition(".")
            if block is None:
                state[name] = value
            elif rest.startswith(f"{block}."):
                state[f"{stem}.{layer}.{rest.partition('.')[2]}"] = value
    apart.load_state_dict(state)
    batch = packed()
    assert torch.equal(shared(batch).hidden, apart(batch).hidden)


def test_factorised_embeddings_are_projected_to_the_hidden_width():
    model = encoder(SMALL.replace(embedding_size=16))
    assert (model.word_embeddings.weight.shape, model(packed()).hidden.shape) == ((VOCAB_SIZE, 16), (91, 48))
    assert encoder().embedding_projection is None


def test_positions_are_read_behind_the_offset():
    config = SMALL.replace(position_offset=2)
    model, plain = encoder(config), encoder()
    assert model.position_embeddings.weight.shape == (34, 48)
    state = plain.state_dict()
    positions = torch.cat([torch.full((2, 48), torch.nan), state["position_embeddings.weight"]])
    model.load_state_dict({**state, "position_embeddings.weight": positions})
    batch = packed()
    assert torch.equal(model(batch).hidden, plain(batch).hidden)


def test_a_single_segment_row_is_added_whatever_the_segment():
    batch = packed()
    one = encoder(SMALL.replace(type_vocab_size=1))
    assert torch.equal(one(batch).hidden, one(replace(batch, segment_ids=batch.segment_ids * 0)).hidden)
    without = encoder(SMALL.replace(type_vocab_size=0, pooler=False))
    assert without.segment_embeddings is None
    assert without(batch).pooled is None


def test_changing_one_sequence_changes_no_other():
    batch = packed()
    model = encoder()
    owners = torch.repeat_interleave(torch.arange(batch.num_sequences), batch.lengths)
    changed = replace(batch, ids=torch.where(owners == 1, 6, batch.ids))
    differs = (model(batch).hidden != model(changed).hidden).any(dim=1)
    assert torch.equal(differs, owners == 1)
