"""Embeddings by our own code are what PyTorch's operations compute, for any number of threads."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from maskwright.core.own_code import allowed
from maskwright.core.tensors import FlatBatch
from maskwright.model.dropout import DropoutKey, dropout, dropout_factors
from maskwright.model.embeddings import sum_embeddings
from maskwright.model.encoder import Encoder
from maskwright.model.native import embeddings
from maskwright.model.native.embeddings import CODE, embedded, takes
from tests.model.flat_batches import PACKED, SMALL, VOCAB_SIZE, encoder, packed
from tests.thread_counts import with_threads

KEY = DropoutKey.on(torch.device("cpu"), 20170612)
BERT = SMALL.replace(hidden_dropout=0.1, attention_dropout=0.1)
CONFIGS = {
    "bert": BERT,
    "albert": BERT.replace(sharing="all", embedding_size=16),
    "roberta": BERT.replace(position_offset=2, type_vocab_size=1),
    "distilbert": BERT.replace(type_vocab_size=0),
}


@pytest.fixture(autouse=True)
def _ours() -> None:
    """Skip where there is no compiled code."""
    if CODE.library() is None:
        pytest.skip(str(CODE.problem()))


class Tables(nn.Module):
    """The tables and the LayerNorm of an encoder, weights as in a trained model."""

    def __init__(self, width: int, *, words: int = 50, positions: int = 20, segments: int = 2, offset: int = 0) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.offset = offset
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(offset + positions, width)
        self.segments = nn.Embedding(segments, width) if segments else None
        self.norm = nn.LayerNorm(width, eps=1e-6)
        with torch.no_grad():
            for weights in self.norm.parameters():
                weights.copy_(torch.randn(width) * 0.5 + 1)

    def given(self) -> tuple[nn.Embedding, nn.Embedding, nn.Embedding | None, nn.LayerNorm]:
        return self.words, self.positions, self.segments, self.norm


def stream(tokens: int, *, words: int = 50, positions: int = 20, segments: int = 2, seed: int = 0) -> FlatBatch:
    draws = torch.Generator().manual_seed(seed)

    def drawn(below: int) -> Tensor:
        return torch.randint(0, below, (tokens,), generator=draws)

    return FlatBatch(
        ids=drawn(words),
        position_ids=drawn(positions),
        segment_ids=drawn(segments),
        sequence_ids=torch.zeros(tokens, dtype=torch.int64),
        first_tokens=torch.zeros(1, dtype=torch.int64),
        row_length=None,
        num_tokens=tokens,
    )


def ours(tables: Tables, batch: FlatBatch, rate: float, call: int = 0) -> Tensor:
    return embedded(batch, *tables.given(), position_offset=tables.offset, rate=rate, key=KEY, call=call)


def plain(tables: Tables, batch: FlatBatch, rate: float, call: int = 0) -> Tensor:
    *looked_up, norm = tables.given()
    return dropout(norm(sum_embeddings(batch, *looked_up, tables.offset)), rate, KEY, call)


def gradients_of(result: Tensor, module: nn.Module) -> dict[str, Tensor]:
    """Return the gradients of all weights that have one, which then have none."""
    slope = torch.randn(result.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    result.backward(slope.to(result.dtype))
    found = {name: each.grad for name, each in module.named_parameters() if each.grad is not None}
    module.zero_grad(set_to_none=True)
    return found


def all_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(each, other[name]) for name, each in one.items())


@settings(deadline=None, max_examples=60)
@given(
    tokens=st.integers(1, 300),
    width=st.integers(1, 12).map(lambda registers: 16 * registers),
    words=st.sampled_from([1, 3, 1000]),
    offset=st.sampled_from([0, 2]),
    segments=st.sampled_from([0, 1, 2, 8]),
    rate=st.sampled_from([0.0, 0.1, 0.5]),
    seed=st.integers(0, 3),
)
def test_is_what_pytorch_computes_in_twice_the_precision(tokens, width, words, offset, segments, rate, seed):
    sizes = {"words": words, "positions": 20, "segments": segments}
    tables, exact = Tables(width, **sizes, offset=offset), Tables(width, **sizes, offset=offset).double()
    batch = stream(tokens, words=words, segments=max(2, segments), seed=seed)
    if segments == 2:
        batch = replace(batch, segment_ids=batch.segment_ids.sort().values)
    assert takes(batch, *tables.given())
    found, wanted = ours(tables, batch, rate), plain(exact, batch, rate)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=2e-5)
    own, right = gradients_of(found, tables), gradients_of(wanted, exact)
    assert own.keys() == right.keys()
    for name, each in own.items():
        assert (each - right[name]).abs().max() <= 2e-5 * max(1, right[name].abs().max()), name


@pytest.mark.parametrize("call", [0, 7])
def test_the_same_values_are_dropped_as_everywhere(call):
    tables, batch = Tables(48), stream(333)
    found = ours(tables, batch, 0.3, call)
    factors = dropout_factors(found.shape, 0.3, KEY, call)
    assert torch.equal(found == 0, factors == 0)
    torch.testing.assert_close(found, ours(tables, batch, 0.0) * factors)


def test_numbers_of_many_calls_made_at_once_drop_the_same():
    tables, batch = Tables(32), stream(100)
    told = {"position_offset": 0, "rate": 0.2, "call": 2}
    one, other = (embedded(batch, *tables.given(), key=key, **told) for key in (KEY, KEY.with_table(4, 32 * 500)))
    assert torch.equal(one, other)


@pytest.mark.parametrize("segments", [0, 1, 2])
def test_a_result_does_not_depend_on_the_number_of_threads(segments):
    tables, batch = Tables(64, words=5000, segments=segments), stream(777, words=4000)
    found = []
    for threads in (1, 2, 3):
        with with_threads(threads):
            result = ours(tables, batch, 0.1)
            found.append({"result": result.detach(), **gradients_of(result, tables)})
    assert all(all_equal(one, other) for one, other in pairwise(found))


def test_what_is_frozen_has_no_gradient_and_changes_no_other():
    tables, batch = Tables(32), stream(90)
    whole = gradients_of(ours(tables, batch, 0.1), tables)
    for name, parameter in tables.named_parameters():
        parameter.requires_grad_(False)
        found = gradients_of(ours(tables, batch, 0.1), tables)
        assert all_equal(found, {other: each for other, each in whole.items() if other != name})
        parameter.requires_grad_(True)
    for table in (tables.words, tables.positions, tables.segments):
        table.requires_grad_(False)
    assert gradients_of(ours(tables, batch, 0.1), tables).keys() == {"norm.weight", "norm.bias"}
    tables.requires_grad_(False)
    assert not ours(tables, batch, 0.1).requires_grad


def test_gradients_of_micro_batches_and_of_a_tied_head_are_added_up():
    tables, exact = Tables(32), Tables(32).double()
    for each in (stream(90), stream(70, seed=1)):
        for computed, weights in ((ours, tables), (plain, exact)):
            result = computed(weights, each, 0.1)
            (result @ weights.words.weight.t()).sum().backward()
    for found, wanted in zip(tables.parameters(), exact.parameters(), strict=True):
        torch.testing.assert_close(found.grad.double(), wanted.grad, rtol=1e-4, atol=1e-3)


def test_a_backward_pass_can_be_repeated_and_not_continued():
    tables, batch = Tables(32), stream(9)
    result, of = ours(tables, batch, 0.1), list(tables.parameters())
    first, again = (torch.autograd.grad(result.square().sum(), of, retain_graph=True) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    slope = torch.ones_like(result, requires_grad=True)
    (continued,) = torch.autograd.grad(result, of[:1], slope, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        continued.sum().backward()


def test_ids_that_were_written_to_since_are_refused():
    tables, batch = Tables(32), stream(9)
    result = ours(tables, batch, 0.0)
    batch.ids[0] += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_ids_and_slopes_may_lie_anyhow():
    tables, batch = Tables(32), stream(9)
    spread = {
        name: torch.stack([getattr(batch, name)] * 2, dim=1)[:, 0] for name in ("ids", "position_ids", "segment_ids")
    }
    assert not spread["ids"].is_contiguous()
    one, other = ours(tables, batch, 0.1), ours(tables, replace(batch, **spread), 0.1)
    assert torch.equal(one, other)
    (found,) = torch.autograd.grad(other.sum(), [tables.words.weight])  # An expanded slope: one number for all.
    (wanted,) = torch.autograd.grad(one, [tables.words.weight], torch.ones_like(one))
    assert torch.equal(found, wanted)


def test_what_is_no_number_stays_none():
    tables, batch = Tables(16), replace(stream(4), ids=torch.tensor([3, 4, 5, 6]))
    with torch.no_grad():
        tables.words.weight[4, 3], tables.words.weight[5, 5] = torch.nan, torch.inf
    result = ours(tables, batch, 0.0)
    assert not result[1:3].isfinite().any()
    assert result[[0, 3]].isfinite().all()
    found = gradients_of(result, tables)
    assert not found["words.weight"][4:6].isfinite().any()
    assert found["words.weight"][[3, 6]].isfinite().all()
    assert not found["norm.weight"].isfinite().any()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ids", 50, "token 3 of the stream .*id 50 of 50, position"),
        ("ids", -1, "token 3 of the stream .*id -1 of 50"),
        ("position_ids", 20, "position 20 of 20, segment"),
        ("position_ids", -3, "position -3 of 20"),
        ("position_ids", 2**63 - 1, "position 9223372036854775807 of 20"),
        ("segment_ids", 2, "segment 2 of 2"),
    ],
)
def test_an_id_without_a_row_is_refused(name, value, said):
    tables, batch = Tables(16, offset=2), stream(5)
    getattr(batch, name)[3] = value
    with pytest.raises(IndexError, match=said):
        ours(tables, batch, 0.1)


def test_a_table_has_the_rows_of_its_weights():
    tables = Tables(16)
    tables.words.weight = nn.Parameter(torch.randn(40, 16))
    with pytest.raises(IndexError, match="id 40 of 40"):
        ours(tables, replace(stream(2), ids=torch.tensor([39, 40])), 0.0)


@pytest.mark.parametrize("segments", [0, 1])
def test_segments_are_not_looked_at_where_there_is_nothing_to_choose(segments):
    tables, batch = Tables(16, segments=segments), stream(5)
    assert torch.equal(ours(tables, batch, 0.0), ours(tables, replace(batch, segment_ids=batch.ids + 900), 0.0))


def test_only_training_with_plain_tables_in_fp32_is_taken():
    batch, tables = stream(8), Tables(64)
    words, *others = tables.given()
    assert takes(batch, words, *others)
    assert not takes(stream(0), words, *others)
    assert not takes(replace(batch, ids=batch.ids.int()), words, *others)
    assert not takes(batch, *Tables(24).given())
    assert not takes(batch, *Tables(64, segments=9).given())
    assert not takes(batch, *Tables(64).double().given())
    assert not takes(batch, *Tables(64).bfloat16().given())
    for asked in ({"padding_idx": 0}, {"max_norm": 1.0}, {"scale_grad_by_freq": True}, {"sparse": True}):
        assert not takes(batch, nn.Embedding(50, 64, **asked), *others)
    assert not takes(batch, nn.Embedding(50, 64, _weight=torch.randn(64, 50).t()), *others)
    for norm in (nn.LayerNorm(64, bias=False), nn.LayerNorm(64, elementwise_affine=False)):
        assert not takes(batch, words, tables.positions, tables.segments, norm)
    assert not takes(replace(batch, position_ids=batch.position_ids[:-1]), words, *others)
    assert not takes(batch, nn.Embedding(50, 64, device="meta"), *others)
    assert not takes(batch, nn.Embedding(50, 48), *others)
    with torch.no_grad():
        assert not takes(batch, words, *others)
    with allowed(False):
        assert not takes(batch, words, *others)


def losses_of(model: Encoder, *, own: bool, half: bool) -> tuple[Tensor, dict[str, Tensor]]:
    model.train()
    with allowed(own), torch.autocast("cpu", torch.bfloat16, enabled=half):
        hidden = model(packed(PACKED, 24, key=KEY.number)).hidden
        scores = hidden[:, : model.config.embedding_width] @ model.word_embeddings.weight.t()
    loss = nn.functional.cross_entropy(scores.float(), torch.arange(len(scores)) % VOCAB_SIZE, reduction="sum")
    return loss.detach(), gradients_of(loss, model)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_whole_encoder_learns_the_same(monkeypatch, name, half):
    model, asked = encoder(CONFIGS[name]), []
    own = embeddings.embedded

    def counted(*given, **told):
        result = own(*given, **told)
        asked.append(result.dtype)
        return result

    monkeypatch.setattr(embeddings, "embedded", counted)
    loss, found = losses_of(model, own=True, half=half)
    assert asked == [torch.float32]
    other, wanted = losses_of(model, own=False, half=half)
    assert asked == [torch.float32]
    assert found.keys() == wanted.keys()
    torch.testing.assert_close(loss, other, rtol=1e-2 if half else 1e-5, atol=0)
    for key, each in found.items():
        apart, usual = (each - wanted[key]).norm(), max(wanted[key].norm(), torch.tensor(1.0))
        assert apart <= (0.05 if half else 1e-4) * usual, key


def test_inference_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(embeddings, "embedded", None)
    with torch.no_grad():
        assert encoder(BERT).eval()(packed(PACKED, 24)).hidden.isfinite().all()
