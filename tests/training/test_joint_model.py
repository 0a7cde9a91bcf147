"""Generator and encoder in one model: the same numbers as transformers' pair, and who learns from what."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from test_batches import SPECIAL, VOCABULARY, step, workload
from test_every_recipe import SHRUNK, WHOLE
from test_every_recipe import model_of as toy_model
from torch import Tensor
from toy_models import take_step, take_steps
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from maskwright.checkpoints.checkpoint import read_checkpoint
from maskwright.core.errors import ConversionError
from maskwright.core.tensors import LossTerm, PackedBatch, TargetTensors
from maskwright.pretext.objectives import MaskedLanguageModeling, ReplacedTokenDetection
from maskwright.recipes.catalog import resolve
from maskwright.recipes.recipe import Recipe
from maskwright.training.steps.batches import MicroBatch
from maskwright.training.steps.model import PretrainingModel
from maskwright.training.steps.update_rules import build_optimizer
from maskwright.training.steps.weights import all_weights, encoder_weights, generator_weights, load_weights

LENGTHS, VOCAB = (13, 5, 20, 3, 9), 73
OBJECTIVES = (MaskedLanguageModeling(), ReplacedTokenDetection(weight=50.0))


def toy(*overrides: str) -> Recipe:
    return resolve("electra/tiny", (*SHRUNK, "encoder.embedding_size=16", *overrides))


# --- the same numbers as transformers' two classes


def pair(**changes: Any) -> tuple[ElectraForMaskedLM, ElectraForPreTraining]:
    """A tiny generator and discriminator of transformers, their embeddings tied by hand."""
    shape = {
        "vocab_size": VOCAB,
        "embedding_size": 24,
        "num_hidden_layers": 2,
        "max_position_embeddings": 24,
        "initializer_range": 0.15,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 64}
    large = {"hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 96}
    torch.manual_seed(0)
    generator = ElectraForMaskedLM(ElectraConfig(**{**shape, **small, **changes})).eval()
    discriminator = ElectraForPreTraining(ElectraConfig(**{**shape, **large, **changes})).eval()
    with torch.no_grad():
        for model in (generator, discriminator):
            for parameter in model.parameters():
                if parameter.dim() == 1:  # A mix-up of biases and LayerNorms shows.
                    parameter += 0.1 * torch.randn_like(parameter)
        generator.generator_lm_head.bias[0] = -40  # They give the padding's embedding no gradient.
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    return generator, discriminator


def ours_of(generator: ElectraForMaskedLM, discriminator: ElectraForPreTraining, folder: Path) -> PretrainingModel:
    generator.save_pretrained(folder / "generator")
    discriminator.save_pretrained(folder / "discriminator")
    small, large = read_checkpoint(folder / "generator"), read_checkpoint(folder / "discriminator")
    model = PretrainingModel(large.config, VOCAB, OBJECTIVES, generator=small.config)
    load_weights(model, joined(small.state, large.state, model), "both folders")
    return model.train()


def joined(small: dict[str, Tensor], large: dict[str, Tensor], model: PretrainingModel) -> dict[str, Tensor]:
    """The weights of both folders under the names of the joint model."""
    of_generator = {name.replace("encoder.", "generator."): tensor for name, tensor in small.items()}
    return {name: tensor for name, tensor in {**of_generator, **large}.items() if name in all_weights(model)}


def ragged(right: Tensor | None = None) -> tuple[dict[str, Tensor], Tensor, MicroBatch]:
    """The same sequences padded, the selected places in them, and as a micro-batch in rows.

    Args:
        right: Tokens that stood at the first selected places, all of which are masked.
    """
    random = torch.Generator().manual_seed(5)
    shape = (len(LENGTHS), max(LENGTHS))
    column = torch.arange(shape[1]).expand(shape)
    real = column < torch.tensor(LENGTHS)[:, None]
    original = torch.where(real, torch.randint(5, VOCAB, shape, generator=random), 0)
    segments = torch.where(real & (column > 3), 1, 0)
    positions = real.flatten().nonzero().squeeze(1)
    selected = positions[torch.randperm(len(positions), generator=random)[:14]].sort().values
    if right is not None:
        original.view(-1)[selected[: len(right)]] = right
    masked = original.flatten().clone()
    masked[selected[:10]] = SPECIAL.mask  # the others stay as they are
    batch = PackedBatch.of(masked[positions].numpy(), segments[real].numpy(), np.array(LENGTHS))
    labels = original.flatten()[selected]
    targets = {
        "mlm": TargetTensors(
            positions=torch.searchsorted(positions, selected),
            labels=labels,
            extra={"sampling": torch.rand(len(selected), generator=random)},
        ),
        "rtd": TargetTensors(positions=torch.arange(len(positions)), labels=original.flatten()[positions]),
    }
    padded = {"input_ids": original, "attention_mask": real.long(), "token_type_ids": segments}
    return padded, selected, MicroBatch(batch, targets)


def total(terms: dict[str, LossTerm], micro: MicroBatch) -> Tensor:
    return torch.stack(
        [each.weight * terms[each.kind].total / len(micro.targets[each.kind].labels) for each in OBJECTIVES]
    ).sum()


def close(actual: Tensor, expected: Tensor, tolerance: float, name: str) -> None:
    """Equal to within a share of the largest value (a key bias has the gradient zero, so there is a floor)."""
    worst = float((actual - expected).abs().max())
    assert worst <= tolerance * max(float(expected.abs().max()), 1e-2), (name, worst)


@pytest.mark.parametrize("changes", [{}, {"hidden_size": 24, "num_attention_heads": 2}], ids=["projected", "E is H"])
def test_joint_step_has_the_losses_and_gradients_of_transformers(tmp_path: Path, changes: dict[str, int]) -> None:
    generator, discriminator = pair(**changes)
    model = ours_of(generator, discriminator, tmp_path)
    _, _, micro = ragged()
    drawn = model.losses(micro)["mlm"].sampled
    padded, selected, micro = ragged(right=drawn[:4])  # Samples do not depend on masked tokens.
    terms = model.losses(micro)

    original = padded["input_ids"].flatten()
    sampled = terms["mlm"].sampled
    assert torch.equal(sampled, drawn)
    assert 4 <= int((sampled == original[selected]).sum()) < len(selected)
    filled = original.clone()
    filled[selected] = sampled
    shape = padded["input_ids"].shape
    answers = torch.full_like(original, -100)
    answers[selected] = original[selected]
    masked = torch.zeros_like(original).masked_scatter_(padded["attention_mask"].flatten() > 0, micro.batch.ids)
    learnt = generator(**{**padded, "input_ids": masked.view(shape)}, labels=answers.view(shape))
    actual = discriminator(
        **{**padded, "input_ids": filled.view(shape)}, labels=(filled != original).long().view(shape)
    )
    expected = {"mlm": learnt.loss, "rtd": actual.loss}
    for kind, term in terms.items():
        assert (term.total / len(micro.targets[kind].labels)).item() == pytest.approx(expected[kind].item(), rel=1e-5)
    assert int(terms["rtd"].tallies["replaced"]) == int((filled != original).sum())

    (expected["mlm"] + 50 * expected["rtd"]).backward()
    total(terms, micro).backward()
    gradients = _gradients(generator, discriminator, model, tmp_path)
    named = dict(model.named_parameters())
    assert named.keys() == gradients.keys()
    for name, parameter in named.items():
        assert parameter.grad is not None, name
        close(parameter.grad, gradients[name], 1e-4, name)


def _gradients(
    generator: ElectraForMaskedLM, discriminator: ElectraForPreTraining, model: PretrainingModel, folder: Path
) -> dict[str, Tensor]:
    # They go through the same table of names as the weights.
    for parameter in {*generator.parameters(), *discriminator.parameters()}:
        parameter.data = parameter.grad.clone()
    generator.save_pretrained(folder / "small gradients")
    discriminator.save_pretrained(folder / "large gradients")
    small, large = (read_checkpoint(folder / name).state for name in ("small gradients", "large gradients"))
    return joined(small, large, model)


# --- who learns from what


def learners(model: PretrainingModel, kind: str) -> set[str]:
    """The first parts of the names of all parameters that one objective's loss reaches."""
    model.zero_grad(set_to_none=True)
    for micro in step(toy(), count=8).micro_batches:
        model.losses(micro)[kind].total.backward()
    reached = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {".".join(name.split(".")[:2]) for name in reached}


SHARED_NAMES = {f"encoder.{part}" for part in ("word_embeddings", "position_embeddings", "segment_embeddings")}
SHARED_NAMES |= {"encoder.embedding_norm"}
LAYERS = ("attention_blocks", "ffn_blocks", "embedding_projection")


def test_detection_teaches_the_encoder_and_masked_tokens_the_generator_both_the_shared_embeddings() -> None:
    model = toy_model(toy("generator.size=0.25"))
    for kind, encoder in (("rtd", "encoder"), ("mlm", "generator")):
        assert learners(model, kind) == SHARED_NAMES | {f"{encoder}.{part}" for part in LAYERS} | {f"heads.{kind}"}


def test_separate_embeddings_are_separate() -> None:
    model = toy_model(toy("generator.shared=none"))
    assert not SHARED_NAMES & learners(model, "mlm")
    assert all_weights(model).keys() == model.state_dict().keys()
    assert not torch.equal(model.generator.word_embeddings.weight, model.encoder.word_embeddings.weight)


# --- what the encoder sees, and what counts as replaced


def test_the_chef_cooked_the_meal() -> None:
    """The example of the paper's figure 2: `the` and `cooked` are masked; `the` is sampled right, `ate` is not."""
    the, chef, cooked, meal, ate = 5, 6, 7, 8, 9
    model = toy_model(toy())
    with torch.no_grad():  # Logits by hand: `the` and `ate` are equally likely wherever something is masked.
        model.heads["mlm"].layer_norm.weight.zero_()
        model.heads["mlm"].bias.fill_(-1000.0)
        model.heads["mlm"].bias[[the, ate]] = 0.0
    mask, cls, sep = SPECIAL.mask, SPECIAL.cls, SPECIAL.sep
    batch = PackedBatch.of(np.array([cls, mask, chef, mask, the, meal, sep]), np.zeros(7), np.array([7]))
    targets = {
        "mlm": TargetTensors(
            positions=torch.tensor([1, 3]),
            labels=torch.tensor([the, cooked]),
            extra={"sampling": torch.tensor([0.25, 0.75])},
        ),
        "rtd": TargetTensors(positions=torch.arange(7), labels=torch.tensor([cls, the, chef, cooked, the, meal, sep])),
    }
    seen, logits = list[Tensor](), list[Tensor]()
    model.encoder.register_forward_pre_hook(lambda _, args: seen.append(args[0].ids))
    model.heads["rtd"].register_forward_hook(lambda _, args, scores: logits.append(scores.detach()))
    terms = model.losses(MicroBatch(batch, targets))
    assert seen[0].tolist() == [cls, the, chef, ate, the, meal, sep]
    assert terms["mlm"].total.item() == pytest.approx(np.log(2) + 1000 + np.log(2), rel=1e-6)
    labels = torch.tensor([0, 0, 0, 1, 0, 0, 0])  # The right `the` is original.
    assert int(terms["rtd"].tallies["replaced"]) == 1
    expected = torch.nn.functional.softplus(torch.where(labels == 1, -logits[0], logits[0])).sum()
    assert terms["rtd"].total.item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("loss_at", ["everywhere", "selected"])
def test_kept_tokens_are_filled_too_and_labels_are_those_of_the_samples(loss_at: str) -> None:
    # The generator sees nearly the text itself.
    recipe = toy("replacement={mask: 0.0, random: 0.01, keep: 0.99}", f"objectives.rtd.loss_at={loss_at}")
    model, (micro, *_) = toy_model(recipe).eval(), step(recipe).micro_batches
    seen = list[Tensor]()
    model.encoder.register_forward_pre_hook(lambda _, args: seen.append(args[0].ids))
    terms, targets = model.losses(micro), micro.targets["mlm"]
    changed = (seen[0] != micro.batch.ids).nonzero().squeeze(1)
    assert torch.equal(seen[0][targets.positions], terms["mlm"].sampled)
    assert set(changed.tolist()) <= set(targets.positions.tolist())
    assert len(changed) > 0.9 * len(targets.positions)  # An untrained generator samples nearly always wrong.
    positions = targets.positions if loss_at == "selected" else torch.arange(micro.batch.num_tokens)
    assert micro.targets["rtd"].positions.tolist() == positions.tolist()
    assert int(terms["rtd"].tallies["replaced"]) == int((terms["mlm"].sampled != targets.labels).sum())


@pytest.mark.parametrize("loss_at", ["everywhere", "selected"])
def test_original_tokens_are_predicted_from_the_samples(loss_at: str) -> None:
    """Replace MLM and All-Tokens MLM: the encoder sees the samples, its targets are the text before masking."""
    recipe = toy("objectives=[mlm, replace_mlm]", f"objectives.replace_mlm.loss_at={loss_at}")
    model, batch = toy_model(recipe).train(), step(recipe, WHOLE)
    (micro, *_), seen = batch.micro_batches, list[Tensor]()
    handle = model.encoder.register_forward_pre_hook(lambda _, args: seen.append(args[0].ids))
    terms, selected = model.losses(micro), micro.targets["mlm"]
    handle.remove()
    targets, sampled = micro.targets["replace_mlm"], terms["mlm"].sampled
    assert torch.equal(seen[0][selected.positions], sampled)
    where = selected.positions if loss_at == "selected" else torch.arange(micro.batch.num_tokens)
    assert torch.equal(targets.positions, where)
    text = seen[0].index_copy(0, selected.positions, selected.labels)
    assert torch.equal(targets.labels, text[where])
    assert int(terms["replace_mlm"].tallies["replaced"]) == int((sampled != selected.labels).sum())
    results = take_steps(recipe, model, batch, 20, learning_rate=3e-3)
    assert results[-1].objectives["replace_mlm"].loss < results[0].objectives["replace_mlm"].loss
    assert ("restored" in results[-1].objectives["replace_mlm"].details) == (loss_at == "everywhere")


def test_the_encoder_learns_what_its_generator_likes_to_draw() -> None:
    recipe = toy("objectives.mlm.weight=1e-12")
    model, favorites = toy_model(recipe).train(), [5, 6, 7]
    with torch.no_grad():
        model.heads["mlm"].layer_norm.weight.zero_()
        model.heads["mlm"].bias.fill_(-1000.0)
        model.heads["mlm"].bias[favorites] = 0.0
    learning = [named for named in model.named_parameters() if not named[0].startswith(("generator.", "heads.mlm."))]
    optimizer = build_optimizer(learning, recipe.training.optimizer)
    batches = [step(recipe, WHOLE, count) for count in (10, 20, 30)]
    for number in range(60):
        batch = batches[number % 3]
        result = take_step(model, optimizer, batch, learning_rate=3e-3 * (1 - number / 60), clip_norm=1.0, step=number)
        model.zero_grad(set_to_none=True)
    detected = result.objectives["rtd"].details
    assert detected["recall"] > 0.95
    assert detected["precision"] > 0.9


# --- samples are keyed


def numbers_by_instance(recipe: Recipe, tokens: int, epoch: int = 0, count: int = 40) -> dict[int, list[float]]:
    """The uniform numbers of each instance, by its number."""
    phase = workload(recipe, tokens).phases[0]
    cursor = phase.sampler.start()
    for _ in range(epoch):
        cursor = phase.sampler.next_epoch(cursor)
    numbers: dict[int, list[float]] = {}
    for _ in range(count):
        rows, cursor = phase.sampler.read(cursor, 1)
        for micro in phase.collator.collate(rows, step=0).micro_batches:
            numbers.setdefault(int(rows.index[0]), []).extend(micro.targets["mlm"].extra["sampling"].tolist())
    return numbers


def test_draws_are_a_function_of_seed_epoch_and_instance() -> None:
    first, again, later = (numbers_by_instance(toy(), 128, epoch) for epoch in (0, 0, 1))
    assert first == again
    common = first.keys() & later.keys()
    assert common
    assert all(set(first[index]).isdisjoint(later[index]) for index in common)
    numbers = np.concatenate([*first.values(), *later.values()])
    assert numbers.min() >= 0
    assert numbers.max() <= 1
    assert abs(numbers.mean() - 0.5) < 4.5 / np.sqrt(12 * len(numbers))


@pytest.mark.parametrize("tokens", [32, 64, 4096])
def test_draws_do_not_depend_on_the_micro_batch(tokens: int) -> None:
    model = toy_model(toy()).eval()

    def drawn(tokens: int) -> tuple[list[float], list[int]]:
        numbers, ids = list[float](), list[int]()
        for micro in step(toy(), tokens).micro_batches:
            numbers += micro.targets["mlm"].extra["sampling"].tolist()
            sampled = model.losses(micro)["mlm"].sampled
            ids += sampled.tolist()
        return numbers, ids

    assert drawn(tokens) == drawn(1 << 20)


def test_encoder_and_generator_have_different_dropout_masks() -> None:
    model, (micro, *_) = toy_model(toy()).train(), step(toy()).micro_batches
    keys = list[int | None]()
    for tower in (model.encoder, model.generator):
        tower.register_forward_pre_hook(lambda _, args: keys.append(args[0].dropout_key))
    model.losses(micro)
    assert len(set(keys)) == 2
    assert micro.batch.dropout_key in keys
    assert None not in keys


# --- weights, and other choices beside it


def test_weights_of_both_encoders_are_selected_and_loaded() -> None:
    model, other = toy_model(toy()), toy_model(toy())
    small, large, all_of_it = generator_weights(model), encoder_weights(model), all_weights(model)
    assert not any(name.startswith(("generator.", "heads.rtd.")) for name in small)
    assert not any(name.startswith(("generator.", "heads.mlm.")) for name in large)
    for part in ("word_embeddings.weight", "embedding_norm.bias"):
        assert torch.equal(small[f"encoder.{part}"], large[f"encoder.{part}"])
        assert f"generator.{part}" not in all_of_it
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    load_weights(other, all_of_it, "here")
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
    with pytest.raises(ConversionError, match=r"do not fit the recipe.*heads\.rtd"):
        load_weights(other, {name: value for name, value in all_of_it.items() if "rtd" not in name}, "here")
    names = list(build_optimizer(model.named_parameters(), toy().training.optimizer).names.values())
    assert sorted(names) == sorted(all_of_it)  # Parameters met twice are optimized once.


@pytest.mark.parametrize(
    "overrides",
    [
        ("masking=whole_word", "encoder.sharing=all", "masks.copies=10"),
        ("objectives=[mlm, rtd, nsp]", "format=segment_pair", "encoder.pooler=true", "objectives.rtd.loss_at=selected"),
        ("objectives=[mlm, rtd, sop]", "format={kind: segment_pair, second: next_or_swapped}", "encoder.pooler=true"),
        ("format=full_sentences", "masking.candidates=all", "generator.shared=none"),
        ("replacement={mask: 0.8, random: 0.1, keep: 0.1}",),
    ],
)
def test_detection_goes_with_other_choices(overrides: tuple[str, ...]) -> None:
    recipe = toy(*overrides)
    model, batch = toy_model(recipe).train(), step(recipe, count=16)
    results = take_steps(recipe, model, batch, 3, learning_rate=1e-3)
    for result in results:
        assert result.objectives.keys() == {objective.kind for objective in recipe.objectives}
        assert np.isfinite(result.loss)
        assert 0 < result.objectives["rtd"].details["replaced"] <= 1
    assert results[-1].objectives["mlm"].loss < results[0].objectives["mlm"].loss


class Filler(MaskedLanguageModeling):
    """The same objective under another name."""

    kind: Literal["filler"] = "filler"


def test_whatever_objective_trains_the_generator_fills_in() -> None:
    recipe = toy("encoder.hidden_dropout=0", "encoder.attention_dropout=0")
    config, generator = recipe.encoder, recipe.generator.config(recipe.encoder)
    usual = PretrainingModel(config, VOCABULARY, OBJECTIVES, generator=generator)
    renamed = PretrainingModel(config, VOCABULARY, (Filler(), OBJECTIVES[1]), generator=generator)
    usual.initialize(0)
    load_weights(
        renamed, {name.replace("heads.mlm", "heads.filler"): value for name, value in all_weights(usual).items()}, ""
    )
    micro = step(recipe, count=8).micro_batches[0]
    other = replace(micro, targets={"filler": micro.targets["mlm"], "rtd": micro.targets["rtd"]})
    first, second = usual.losses(micro), renamed.losses(other)
    assert torch.equal(first["mlm"].total, second["filler"].total)
    assert torch.equal(first["rtd"].total, second["rtd"].total)
