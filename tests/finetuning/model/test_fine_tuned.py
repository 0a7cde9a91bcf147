"""Models with a head for a task: built from any folder, kept and read, whoever wrote them."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from tiny_tuned import (
    EVERY_HEAD,
    FAMILIES,
    LABELS,
    SOME_HEADS,
    class_of,
    config_of,
    predict_examples,
    pretrained,
    ragged,
    their_scores,
    tokenizer_of,
)

from maskwright.checkpoints.task_entries import TaskEntries
from maskwright.core.errors import ConversionError, DataError, JsonError, RecipeError
from maskwright.finetuning.examples import TextExample
from maskwright.finetuning.model.fine_tuned import build, load
from maskwright.finetuning.tasks import infer_task
from maskwright.finetuning.tasks.multiple_choice import MultipleChoice
from maskwright.finetuning.tasks.question_answering import QuestionAnswering
from maskwright.finetuning.tasks.tagging import Tagging
from maskwright.finetuning.tasks.texts import Classification, MultiLabel, Regression
from maskwright.kernels.setting import use_kernels
from maskwright.model.inference_encoder import InferenceEncoder
from maskwright.training.start.existing import open_existing
from tests.checkpoints.tiny_models import build as build_theirs
from tests.checkpoints.tiny_models import tensors_of

TAGS = ("O", "B-PER", "I-PER")
TASKS = {
    "sequence": Classification(labels=LABELS),
    "token": Tagging(labels=TAGS, entities=True, metrics=("f1",)),
    "span": QuestionAnswering(),
    "choice": MultipleChoice(),
}
# Families whose pretraining leaves no pooler, and heads that read one all the same.
WITHOUT_POOLER = {"distilbert", "electra", "modernbert", "roberta"}
POOLED = {(family, kind) for family in ("bert", "albert", "ernie") for kind in ("sequence", "choice")}
POOLED |= {("roberta", "choice")}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Pretrained models of all families."""
    return {family: pretrained(tmp_path_factory.mktemp("pretrained") / family, family) for family in FAMILIES}


def _same(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


@EVERY_HEAD
def test_a_pretrained_model_gives_all_but_its_heads(folders, family, kind):
    task = TASKS[kind]
    model, other = (build(folders[family], task, seed=seed) for seed in (3, 4))
    assert not model.training
    pooled = (family, kind) in POOLED
    makes_pooler = pooled and family in WITHOUT_POOLER
    state, initial = model.state_dict(), other.state_dict()
    fresh = {name for name in state if name.startswith("head.") or (makes_pooler and ".pooler." in name)}
    assert ("encoder.pooler.weight" in state) == pooled
    from maskwright.checkpoints.checkpoint import read_checkpoint

    source = read_checkpoint(folders[family]).state
    for name in state.keys() - fresh:
        assert torch.equal(state[name], source[name]), name
        assert torch.equal(initial[name], source[name]), name
    for name in fresh:
        if name.endswith("bias"):
            assert not state[name].any()
        elif "norm" in name:
            assert (state[name] == 1).all()
        else:
            assert not torch.equal(state[name], initial[name]), name
    _same(build(folders[family], task, seed=3).state_dict(), state)
    taken, new, left = model.notes
    assert taken.startswith(f"loaded from {folders[family]}: embeddings, layers")
    assert ("pooler" in taken, "pooler" in new) == (pooled and not makes_pooler, makes_pooler)
    assert new == f"newly initialized: head{', pooler' if makes_pooler else ''} (of {class_of(family, kind).__name__})"
    assert ("pooler" in left) == (not pooled and family not in WITHOUT_POOLER)
    assert "head 'rtd'" in left if family == "electra" else "head 'mlm'" in left


@SOME_HEADS
def test_a_micro_batch_without_labels_has_gradients_of_zero_for_the_same_parameters(folders, family, kind):
    # The ranks add up lists of gradients: they must be of the same parameters.
    model, made, reached = build(folders[family], TASKS[kind], seed=3).train(), ragged(family, kind).batch, []
    shape = {"token": (len(made.positions),) if kind == "token" else (), "span": (len(made.unit_numbers), 2)}
    labels = torch.zeros(shape.get(kind, (len(made.unit_numbers),)), dtype=torch.int64)
    for each in (labels, None):
        (term,) = model.losses(replace(made, labels=each)).values()
        term.total.backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
        reached.append(gradients.keys())
        assert any(gradient.any() for gradient in gradients.values()) == (each is not None)
        model.zero_grad(set_to_none=True)
    assert reached[0] == reached[1]


@SOME_HEADS
def test_from_scratch_nothing_is_taken_but_shape_and_tokenizer(folders, tmp_path, family, kind):
    taken = build(folders[family], TASKS[kind], seed=3)
    model = build(folders[family], TASKS[kind], seed=3, from_scratch=True)
    assert model.encoder.config == taken.encoder.config
    assert model.tokenizer.fingerprint == taken.tokenizer.fingerprint
    assert model.notes == (f"all weights are newly initialized; shape and tokenizer are those of {folders[family]}",)
    state, other = model.state_dict(), build(folders[family], TASKS[kind], seed=4, from_scratch=True).state_dict()
    assert state.keys() == taken.state_dict().keys()
    for name, value in state.items():
        assert value.isfinite().all(), name
        if name.endswith("bias"):
            assert not value.any(), name
        elif value.ndim == 1:
            assert (value == 1).all(), name
        else:
            new_anyway = name.startswith(("head.", "encoder.pooler"))
            assert new_anyway or not torch.equal(value, taken.state_dict()[name]), name
            assert not torch.equal(value, other[name]), name
    _same(build(folders[family], TASKS[kind], seed=3, from_scratch=True).state_dict(), state)
    # A head that was trained for these very labels is not taken either.
    taken.save(tmp_path)
    _same(build(tmp_path, TASKS[kind], seed=3, from_scratch=True).state_dict(), state)


@EVERY_HEAD
def test_a_model_comes_back_as_it_was_and_transformers_loads_it(folders, tmp_path, family, kind):
    model = build(folders[family], TASKS[kind], seed=3, max_length=24, hidden_dropout=0.25)
    model.save(tmp_path)
    again = load(tmp_path)
    _same(again.state_dict(), model.state_dict())
    assert again.task == model.task
    assert again.encoder.config == model.encoder.config
    assert (again.family, again.max_length, again.head.rate) == (family, 24, model.head.rate)
    assert again.tokenizer.fingerprint == model.tokenizer.fingerprint
    assert again.notes == ()
    made = ragged(family, kind)
    with torch.no_grad():
        scores = model.scores(made.batch)
        assert torch.equal(again.scores(made.batch), scores)
        auto = getattr(transformers, "AutoModel" + class_of(family, kind).__name__.removeprefix(FAMILIES[family][0]))
        theirs, report = auto.from_pretrained(tmp_path, output_loading_info=True)
        assert not any(report.values()), report
        assert type(theirs) is class_of(family, kind)
        torch.testing.assert_close(scores, their_scores(theirs.eval(), kind, made), atol=1e-5, rtol=0)
    if kind in ("sequence", "token"):
        assert theirs.config.id2label == dict(enumerate(model.task.labels))
    assert transformers.AutoTokenizer.from_pretrained(tmp_path).model_max_length == 24
    again.save(tmp_path / "again")
    _same(tensors_of(tmp_path / "again"), tensors_of(tmp_path))
    for name in ("config.json", "task.json", "tokenizer_config.json"):
        assert (tmp_path / "again" / name).read_text() == (tmp_path / name).read_text()


@SOME_HEADS
def test_scoring_computes_what_training_does_by_the_fastest_code(folders, family, kind):
    model, batch = build(folders[family], TASKS[kind], seed=1), ragged(family, kind).batch
    with torch.inference_mode():
        wanted = model.scores(batch)
        for kernels in (True, False):
            with use_kernels(kernels):
                encode = InferenceEncoder(model.encoder, "fp32")
                actual = model.scores_of(encode(batch.batch, model.head.output_positions(batch)))
            torch.testing.assert_close(actual, wanted, atol=1e-5, rtol=1e-5)


GUESSES = [
    ("sequence", {"labels": LABELS}, Classification(labels=LABELS)),
    ("sequence", {"labels": LABELS, "problem_type": "single_label_classification"}, Classification(labels=LABELS)),
    ("sequence", {"labels": LABELS, "problem_type": "multi_label_classification"}, MultiLabel(labels=LABELS)),
    ("sequence", {"labels": ("LABEL_0",)}, Regression()),
    ("sequence", {"labels": ("score",), "problem_type": "regression"}, Regression()),
    ("token", {"labels": TAGS}, Tagging(labels=TAGS, entities=True, metrics=("f1", "precision", "recall", "accuracy"))),
    ("token", {"labels": ("NOUN", "VERB")}, Tagging(labels=("NOUN", "VERB"), outside="NOUN")),
    ("span", {}, QuestionAnswering()),
    ("choice", {}, MultipleChoice()),
]


@pytest.mark.parametrize(
    ("kind", "changes", "task"), GUESSES, ids=[f"{task.kind} {number}" for number, (*_, task) in enumerate(GUESSES)]
)
def test_tasks_of_transformers_models_follow_from_class_and_labels(tmp_path, kind, changes, task):
    tokenizer = tokenizer_of("bert")
    config = config_of("bert", vocab_size=tokenizer.special_tokens.vocab_size, **changes)
    theirs = build_theirs(class_of("bert", kind), config)
    theirs.save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    model, made = load(tmp_path), ragged("bert", kind)
    assert model.task == task
    (note,) = model.notes
    assert f"{class_of('bert', kind).__name__}: {task.kind}" in note
    with torch.no_grad():
        torch.testing.assert_close(model.scores(made.batch), their_scores(theirs, kind, made), atol=1e-5, rtol=0)
    # Ours from there on.
    model.save(tmp_path / "ours")
    again = load(tmp_path / "ours")
    assert (again.task, again.notes) == (task, ())
    _same(again.state_dict(), model.state_dict())


def test_an_unknown_head_is_not_loaded_as_another(tmp_path):
    with pytest.raises(AssertionError, match="pairs"):
        infer_task(TaskEntries(head="pairs"), tmp_path)


def test_a_head_for_the_same_labels_is_kept_and_another_is_not(folders, tmp_path):
    first = build(folders["roberta"], TASKS["sequence"], seed=1, head_dropout=0.35)
    first.save(tmp_path)
    same = build(tmp_path, TASKS["sequence"], seed=2)
    _same(same.state_dict(), first.state_dict())
    assert same.head.rate == 0.35
    assert "head" in same.notes[0]
    for task in (Classification(labels=(*LABELS[1:], LABELS[0])), MultiLabel(labels=LABELS)):
        other = build(tmp_path, task, seed=2)
        assert not torch.equal(other.head.dense.weight, first.head.dense.weight)
        assert other.head.rate == other.encoder.config.hidden_dropout
        assert other.notes[1:] == (
            "newly initialized: head (of RobertaForSequenceClassification)",
            "ignored: its head for bad, fair, good",
        )
        assert torch.equal(other.encoder.word_embeddings.weight, first.encoder.word_embeddings.weight)
    numbered = Classification(labels=("0", "1"))
    build(folders["roberta"], numbered, seed=1).save(tmp_path / "numbered")
    assert build(tmp_path / "numbered", numbered, seed=2).notes[1].startswith("newly initialized: head")
    build(folders["roberta"], Regression(), seed=1).save(tmp_path / "numbers")
    assert build(tmp_path / "numbers", Regression(scale=5.0), seed=2).notes[1].startswith("newly initialized: head")
    answers = build(folders["roberta"], QuestionAnswering(), seed=1)
    answers.save(tmp_path / "answers")
    _same(build(tmp_path / "answers", QuestionAnswering(metric="cmrc"), seed=2).state_dict(), answers.state_dict())
    tags = build(tmp_path, TASKS["token"], seed=2)
    assert tags.notes[1:] == ("newly initialized: head (of RobertaForTokenClassification)", "ignored: head 'sequence'")


def test_weights_of_a_checkpoint_are_copied(folders):
    existing = open_existing(str(folders["bert"]))
    first = build(existing, TASKS["sequence"], seed=1)
    before = {name: value.clone() for name, value in first.state_dict().items()}
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.add_(1.0)  # As training does.
    _same(build(existing, TASKS["sequence"], seed=1).state_dict(), before)


def test_settings_are_those_given_and_unsupported_ones_are_reported(folders):
    model = build(
        folders["bert"], TASKS["sequence"], seed=1, hidden_dropout=0.2, attention_dropout=0.3, head_dropout=0.4
    )
    config = model.encoder.config
    assert (config.hidden_dropout, config.attention_dropout, model.head.rate) == (0.2, 0.3, 0.4)
    assert model.max_length == 40
    assert len(model.notes) == 3
    for family, kind, rate in (("bert", "span", 0.0), ("distilbert", "token", 0.2), ("roberta", "choice", 0.2)):
        model = build(folders[family], TASKS[kind], seed=1, hidden_dropout=0.2, head_dropout=0.4)
        assert model.head.rate == rate
        name = class_of(family, kind).__name__
        assert model.notes[-1] == f"head_dropout is {rate:g}: {name} has no setting for it"


def test_longer_sequences_than_there_are_positions_are_refused(folders, tmp_path):
    with pytest.raises(RecipeError, match=r"max_length is 41.* 40 positions.*max_length=40"):
        build(folders["bert"], TASKS["sequence"], seed=1, max_length=41)
    pretrained(tmp_path, "bert", trained_length=16)
    assert build(tmp_path, TASKS["sequence"], seed=1).max_length == 16
    *_, note = build(tmp_path, TASKS["sequence"], seed=1, max_length=30).notes
    assert "trained on sequences of 16 tokens" in note


@pytest.mark.parametrize(
    ("family", "expected"), [(family, family not in ("roberta", "distilbert", "modernbert")) for family in FAMILIES]
)
def test_segments_are_given_as_transformers_gives_them(folders, tmp_path, family, expected):
    model = build(folders[family], TASKS["sequence"], seed=1)
    assert model.layout.segments == expected
    model.save(tmp_path)
    encoded = transformers.AutoTokenizer.from_pretrained(tmp_path)("the cat", "a dog")
    assert ("token_type_ids" in encoded) == expected
    assert not expected or 1 in encoded["token_type_ids"]


def test_a_regression_is_written_in_the_unit_of_its_numbers(folders, tmp_path):
    model = build(folders["electra"], Regression(offset=-1.5, scale=5.0), seed=1)
    examples = [TextExample(key=str(number), texts=(text, "a cat"), label=None) for number, text in enumerate(LABELS)]
    expected = [(each.value, dict(each.details)) for each in predict_examples(model, examples)]
    model.save(tmp_path)
    again = load(tmp_path)
    assert again.task == Regression(scale=1.0)
    for each, (value, details) in zip(predict_examples(again, examples), expected, strict=True):
        assert each.value == pytest.approx(value, abs=1e-5)
        assert dict(each.details) == pytest.approx(details, abs=1e-5)


def _refused(folder, *parts, error=ConversionError):
    with pytest.raises(error) as caught:
        load(folder)
    for part in parts:
        assert part in str(caught.value)


def test_what_is_no_fine_tuned_model_is_refused(folders, tmp_path):
    _refused(
        folders["bert"], "is a pretrained model, not a fine-tuned one", f"maskwright finetune {folders['bert']} --task"
    )
    model = build(folders["bert"], TASKS["sequence"], seed=1)
    model.save(tmp_path)
    path = tmp_path / "task.json"
    good = path.read_text()
    path.write_text(json.dumps({**json.loads(good), "labels": ["bad", "good", "fair"]}))
    _refused(tmp_path, "task.json", "bad, good, fair", "bad, fair, good", "remove task.json")
    path.write_text(json.dumps(TASKS["token"].to_json()))
    _refused(tmp_path, "a head 'token'", "a head 'sequence'")
    path.write_text("{")
    _refused(tmp_path, "task.json is not valid JSON", error=JsonError)
    path.write_text("[]")
    _refused(tmp_path, "task.json contains a list", error=JsonError)
    path.write_text('{"kind": "classifying"}')
    _refused(tmp_path, "classifying", error=DataError)
    path.unlink()
    assert load(tmp_path).task == TASKS["sequence"]
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "problem_type": "regression"}))
    _refused(tmp_path, "predicts 3 numbers at once")


def test_a_fine_tuned_model_still_embeds_and_names_its_other_heads(folders, tmp_path):
    import maskwright

    model = build(folders["bert"], TASKS["sequence"], seed=1, max_length=24)
    model.save(tmp_path)
    vectors = [maskwright.load(folder, device="cpu").embed("the cat sat") for folder in (folders["bert"], tmp_path)]
    np.testing.assert_allclose(*vectors, atol=1e-5)
    with pytest.raises(ConversionError, match="no head for masked tokens"):
        maskwright.load(tmp_path, device="cpu").fill_mask("the [MASK]")
    existing = open_existing(str(tmp_path))
    assert (existing.max_length, existing.task.labels, existing.task.dropout) == (24, LABELS, 0.1)
