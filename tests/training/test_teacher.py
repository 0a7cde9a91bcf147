"""A teacher sees what the student sees, and says what its own classes say."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_batches import step
from toy_models import small, toy_tokenizer

from maskwright.checkpoints.checkpoint import Checkpoint
from maskwright.core.errors import RecipeError
from maskwright.core.spec import override, parse_overrides
from maskwright.core.tensors import PackedBatch
from maskwright.pretext.objectives.mlm import MaskedLanguageModeling
from maskwright.recipes.catalog import resolve
from maskwright.recipes.recipe import Recipe
from maskwright.training.start.existing import build_teacher
from maskwright.training.start.initialization import check_teacher, inherit_from_teacher, open_source_models
from maskwright.training.steps.model import build_model

SIZE = toy_tokenizer().special_tokens.vocab_size


def student(*overrides: str, name: str = "distilbert/tiny") -> Recipe:
    return resolve(name, small(SIZE, "encoder.num_layers=2", "teacher.model=x", *overrides))


def flat(ids: list[list[int]], segments: int = 0) -> PackedBatch:
    rows = np.array(ids)
    lengths = np.full(len(rows), rows.shape[1])
    return PackedBatch.of(rows.ravel(), np.full(rows.size, segments), lengths, dropout_key=3)


def test_a_teacher_computes_as_its_hugging_face_class(bert: Checkpoint) -> None:
    from transformers import BertForMaskedLM

    theirs = BertForMaskedLM.from_pretrained(bert.folder).eval()
    ids = [[2, 9, 4, 30, 3], [2, 4, 11, 12, 3]]
    encoded = build_teacher(bert, student()).encode_batch(flat(ids))
    with torch.no_grad():
        expected = theirs(torch.tensor(ids), output_hidden_states=True)
    assert (encoded.output.hidden - expected.hidden_states[-1].flatten(0, 1)).abs().max() < 1e-5
    logits = MaskedLanguageModeling().logits(encoded.heads["mlm"], encoded.output.hidden, encoded.word_embeddings)
    assert (logits - expected.logits.flatten(0, 1)).abs().max() < 1e-4
    assert encoded.output.pooled is None


def test_the_teacher_of_a_student_without_segments_ignores_them(bert: Checkpoint) -> None:
    ids = [[2, 9, 4, 30, 3]]
    blind = build_teacher(bert, student())
    seeing = build_teacher(bert, student("encoder.type_vocab_size=2"))
    first, second = (teacher.encode_batch(flat(ids, segments=1)).output.hidden for teacher in (blind, seeing))
    assert torch.equal(first, blind.encode_batch(flat(ids)).output.hidden)
    assert not torch.allclose(first, second)


def test_a_teacher_drops_nothing_and_learns_nothing(bert: Checkpoint) -> None:
    teacher = build_teacher(bert, student())
    batch = flat([[2, 9, 4, 30, 3]])
    first, second = (teacher.encode_batch(replace(batch, dropout_key=key)).output.hidden for key in (1, 2))
    assert torch.equal(first, second)
    assert not first.requires_grad
    assert not any(parameter.requires_grad for parameter in teacher.encoder.parameters())
    recipe = student()
    model = build_model(recipe, SIZE, teacher)
    assert not any("teacher" in name for name, _ in model.named_parameters())


def test_the_teacher_predicts_only_where_an_objective_needs_it(bert: Checkpoint) -> None:
    batches = []

    class Counted(type(build_teacher(bert, student()))):
        def encode_batch(self, batch: PackedBatch, qkv_layer: int | None = None) -> object:
            batches.append(batch.ids)
            return super().encode_batch(batch, qkv_layer)

    teacher = build_teacher(bert, student())
    teacher.__class__ = Counted
    recipe = student()
    batch = step(recipe.replace(tokenizer=recipe.tokenizer.replace(vocab_size=500)), count=4).micro_batches[0]
    small_ids = replace(batch.batch, ids=batch.batch.ids % SIZE)
    targets = {kind: replace(wanted, labels=wanted.labels % SIZE) for kind, wanted in batch.targets.items()}
    build_model(recipe, SIZE, teacher).losses(replace(batch, batch=small_ids, targets=targets))
    assert len(batches) == 1
    assert torch.equal(batches[0], small_ids.ids)  # The same masked input.
    alone = recipe.replace(objectives=("mlm",), teacher=None)
    build_model(alone, SIZE, teacher).losses(replace(batch, batch=small_ids, targets={"mlm": targets["mlm"]}))
    assert len(batches) == 1


def test_a_teacher_of_another_width_can_teach_soft_targets_but_not_hidden_states(bert: Checkpoint) -> None:
    wide = student("encoder.hidden_size=64", "teacher.initialize=none")
    message = r"'cosine' compares hidden states.*32 wide.*is 64.*hidden_size=32.*leave 'cosine'"
    with pytest.raises(RecipeError, match=message):
        check_teacher(wide, bert)
    check_teacher(wide.replace(objectives=tuple(each for each in wide.objectives if each.kind != "cosine")), bert)


@pytest.mark.parametrize("initialize", ["none", "layers"])
def test_all_that_mends_another_width_is_named_at_once(bert: Checkpoint, initialize: str) -> None:
    shape = ("encoder.hidden_size=48", "encoder.num_heads=3", "encoder.intermediate_size=192")
    wide = student(*shape, f"teacher.initialize={initialize}")
    with pytest.raises(RecipeError) as caught:
        check_teacher(wide, bert)
    (named,) = re.findall(r"`(--set .*?)`", str(caught.value))
    mended = override(wide, parse_overrides(named.replace("--set ", "").split()))
    check_teacher(mended, bert)
    inherit_from_teacher(mended, bert, ())
    assert (mended.encoder.hidden_size, mended.encoder.num_heads, mended.encoder.intermediate_size) == (32, 2, 64)


def test_projections_are_those_of_the_hugging_face_class(bert: Checkpoint) -> None:
    from transformers import BertForMaskedLM

    theirs = BertForMaskedLM.from_pretrained(bert.folder).eval()
    ids = [[2, 9, 4, 30, 3], [2, 4, 11, 12, 3]]
    with torch.no_grad():
        hidden = theirs(torch.tensor(ids), output_hidden_states=True).hidden_states
    teacher = build_teacher(bert, student())
    assert teacher.encode_batch(flat(ids)).output.qkv is None
    for layer in (0, 3):
        qkv = teacher.encode_batch(flat(ids), layer).output.qkv
        attention = theirs.bert.encoder.layer[layer].attention.self
        for ours, dense in zip(qkv, (attention.query, attention.key, attention.value), strict=True):
            assert (ours - dense(hidden[layer]).flatten(0, 1)).abs().max() < 1e-5


def test_relations_teach_any_width_however_a_step_is_cut(bert: Checkpoint) -> None:
    wide = ("encoder.hidden_size=48", "encoder.num_heads=3", "encoder.intermediate_size=64", "teacher.initialize=none")
    recipe = student(*wide, "objectives=[relations]", "encoder.hidden_dropout=0", "encoder.attention_dropout=0")
    check_teacher(recipe, bert)
    model = build_model(recipe, SIZE, build_teacher(bert, recipe))
    model.initialize(0)
    totals, gradients = [], []
    for tokens in (1, 10_000):
        model.zero_grad()
        batch = step(recipe.replace(tokenizer=recipe.tokenizer.replace(vocab_size=500)), tokens_per_microbatch=tokens)
        micros = [replace(each, batch=replace(each.batch, ids=each.batch.ids % SIZE)) for each in batch.micro_batches]
        terms = [model.losses(each)["relations"].total for each in micros]
        torch.stack(terms).sum().backward()
        totals.append(sum(term.item() for term in terms))
        gradients.append(model.encoder.attention_blocks[-1].query.weight.grad)
        assert batch.counts["relations"] == batch.num_tokens
    assert totals[0] > 0
    assert totals[0] == pytest.approx(totals[1], rel=1e-4)
    assert (gradients[0] - gradients[1]).abs().max() < 1e-3 * gradients[0].abs().max()
    assert model.encoder.attention_blocks[-1].output.weight.grad is None  # Only what precedes the relations.


def test_relations_of_the_teacher_itself_have_no_divergence(bert: Checkpoint) -> None:
    recipe = student("objectives=[relations]", "encoder.num_layers=4", "encoder.type_vocab_size=2")
    teacher = build_teacher(bert, recipe)
    model = build_model(recipe, SIZE, teacher).eval()
    model.encoder.load_state_dict(teacher.encoder.state_dict())
    batch = step(recipe.replace(tokenizer=recipe.tokenizer.replace(vocab_size=500)), count=4).micro_batches[0]
    batch = replace(batch, batch=replace(batch.batch, ids=batch.batch.ids % SIZE))
    assert abs(model.losses(batch)["relations"].total.item()) < 1e-3


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "objectives.0.relation_heads=5",
            r"relation_heads is 5.*width 48.*teacher's, 32.*divisor of 16, or null for 16",
        ),
        ("objectives.0.teacher_layer=5", r"teacher_layer is 5, but the teacher has 4 layers.*1 to 4"),
    ],
)
def test_relations_that_the_teacher_lacks_are_refused(bert: Checkpoint, setting: str, message: str) -> None:
    recipe = student("encoder.hidden_size=48", "encoder.num_heads=3", "objectives=[relations]", setting)
    with pytest.raises(RecipeError, match=message):
        check_teacher(recipe, bert)


def test_a_teacher_without_a_masked_token_head_is_refused(bert: Checkpoint) -> None:
    headless = replace(bert, state={name: value for name, value in bert.state.items() if "heads.mlm" not in name})
    with pytest.raises(RecipeError, match="'soft_targets' needs the scores of the teacher's masked-token head"):
        check_teacher(student(), headless)
    check_teacher(student("objectives=[mlm, cosine]"), headless)
    assert build_teacher(headless, student()).heads == {}


def test_a_teacher_that_reads_less_than_the_student_is_refused(bert: Checkpoint) -> None:
    long = student("encoder.max_positions=128", "training.phases=[{max_length: 64}]")
    with pytest.raises(RecipeError, match=r"reach length 64, but the teacher .* has 40 positions.*max_length: 40"):
        check_teacher(long, bert)


@pytest.mark.parametrize("name", ["distilbert/tiny", "distilroberta/base"])
def test_a_student_without_a_teacher_is_an_error_with_a_hint(name: str) -> None:
    with pytest.raises(RecipeError, match=r"learns from a teacher, and none is given.*--teacher DIR_OR_HUB_NAME"):
        open_source_models(resolve(name), None, None)
