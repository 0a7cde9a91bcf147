"""What a recipe costs before anything is trained: parameters by part, operations, memory."""

from collections.abc import Mapping
from dataclasses import dataclass

from maskwright.core.types import HeadShape
from maskwright.model.config import EncoderConfig
from maskwright.model.sizes import count_parameters, flops_per_token, memory, mlm_head_parameters, total_parameters
from maskwright.pretext.objectives import Objective
from maskwright.recipes.recipe import SHARED_EMBEDDINGS, Recipe

_SHARED = tuple(part.replace("_", " ") for part in SHARED_EMBEDDINGS)
"""As `count_parameters` calls them."""


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """Operations at one sequence length, every sequence full.

    Attributes:
        max_length: Tokens in a sequence.
        share: Share of the steps spent at this length.
        training: FLOPs per token, forward and backward, heads counted.
        inference: FLOPs per token of the encoder alone, forward.
        total: FLOPs of all published steps of this phase.
    """

    max_length: int
    share: float
    training: float
    inference: float
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What a recipe costs.

    Attributes:
        parts: Parameters of the encoder by part, shared blocks counted once; the pooler is left out.
        pooler: Parameters of the pooler, 0 without one.
        heads: Parameters of each objective's head by its kind; output matrices are the word embeddings.
        generator: Parameters of a generator by part, without what it shares with the encoder; empty without one.
        masked_lm: What fills blanks: encoder without pooler and a masked-language-model head; the whole generator with
            its head, where there is one.
        phases: Operations at each length of the published schedule.
        memory: Bytes in training by kind, fp32 with AdamW or LAMB, and a teacher's weights; activations come on top.
    """

    parts: dict[str, int]
    pooler: int
    heads: dict[str, int]
    generator: dict[str, int]
    masked_lm: int
    phases: tuple[PhaseCost, ...]
    memory: dict[str, int]

    @property
    def encoder(self) -> int:
        """Parameters of the encoder without its pooler."""
        return sum(self.parts.values())

    @property
    def encoder_and_pooler(self) -> int:
        """Parameters of the encoder with its pooler."""
        return self.encoder + self.pooler

    @property
    def pretraining(self) -> int:
        """Parameters in pre-training: encoder, pooler, generator and the heads of all objectives."""
        return self.encoder_and_pooler + sum(self.generator.values()) + sum(self.heads.values())

    @property
    def training_flops(self) -> float:
        """FLOPs of the whole published training, every sequence full."""
        return sum(phase.total for phase in self.phases)


def sizes(recipe: Recipe) -> Sizes:
    """Count a recipe's parameters, FLOPs and memory, without building anything.

    Example:
        >>> sizes(catalog.get("bert/base")).encoder_and_pooler
        109482240
    """
    config, vocab_size = recipe.encoder, recipe.tokenizer.vocab_size
    parts = count_parameters(config, vocab_size)
    pooler = parts.pop("pooler")
    heads = _head_parameters(recipe)
    filling, filler = sum(parts.values()), config
    generator: dict[str, int] = {}
    if recipe.generator is not None:
        filler = recipe.generator.config(config)
        generator = count_parameters(filler, vocab_size)
        filling = sum(generator.values())
        if recipe.generator.shared == "embeddings":
            generator = {name: count for name, count in generator.items() if name not in _SHARED}
    return Sizes(
        parts={name: count for name, count in parts.items() if count},
        pooler=pooler,
        heads=heads,
        generator={name: count for name, count in generator.items() if count},
        masked_lm=filling + mlm_head_parameters(filler, vocab_size),
        phases=_phase_costs(recipe),
        memory=memory(config, vocab_size, sum(heads.values()) + sum(generator.values())) | _teacher_memory(recipe),
    )


def _teacher_memory(recipe: Recipe) -> dict[str, int]:
    """Bytes of a teacher as published, with the head that gives its scores; it has neither gradients nor moments."""
    if recipe.teacher is None:
        return {}
    config, vocab_size = recipe.teacher.config(recipe.encoder).replace(pooler=False), recipe.tokenizer.vocab_size
    return {"teacher": 4 * (total_parameters(config, vocab_size) + mlm_head_parameters(config, vocab_size))}


def _head_parameters(recipe: Recipe) -> dict[str, int]:
    vocab_size = recipe.tokenizer.vocab_size
    return {
        objective.kind: objective.num_parameters(_shape_under(recipe, objective, vocab_size))
        for objective in recipe.objectives
    }


def training_flops_per_token(
    recipe: Recipe,
    vocab_size: int,
    *,
    length: float,
    predictions_per_token: Mapping[str, float] | None = None,
    sequences_per_token: float | None = None,
    teacher: EncoderConfig | None = None,
) -> float:
    """Return the training FLOPs per real token of a recipe, heads counted, by the formula of `encoder.sizes`.

    A teacher and its head run forward only, so they count once where what is trained counts three times.

    Args:
        recipe: What is trained.
        vocab_size: Entries of the vocabulary.
        length: Mean number of tokens attended, in tokens.
        predictions_per_token: Predictions of each objective per real token, by kind; None takes what full sequences
            give (`Objective.predictions_per_token`).
        sequences_per_token: Sequences per real token; None means 1 / `length`.
        teacher: The shape of the teacher, where the recipe has one; None takes `Teacher.config`.
    """
    bodies, heads, watched = 0.0, 0.0, 0.0
    if recipe.teacher is not None:
        teacher = (teacher or recipe.teacher.config(recipe.encoder)).replace(pooler=False)
        watched = flops_per_token(teacher, length=length) / 3
    for config in _trained(recipe):
        bodies += flops_per_token(config, length=length, sequences_per_token=sequences_per_token)
    for objective in recipe.objectives:
        if predictions_per_token is None:
            share = objective.predictions_per_token(recipe.masking.rate, length)
        else:
            share = predictions_per_token.get(objective.kind, 0.0)
        heads += share * objective.flops(_shape_under(recipe, objective, vocab_size))
        if teacher is not None and objective.needs_teacher_scores:
            watched += share * objective.flops(teacher.head_shape(vocab_size))
    return bodies + 3 * heads + watched


def _trained(recipe: Recipe) -> list[EncoderConfig]:
    """The encoders that run forward and backward."""
    generator = recipe.generator
    return [recipe.encoder] if generator is None else [recipe.encoder, generator.config(recipe.encoder)]


def _shape_under(recipe: Recipe, objective: Objective, vocab_size: int) -> HeadShape:
    """What the head of an objective sits on."""
    config = recipe.encoder
    if recipe.generator is not None and objective.on_generator:
        config = recipe.generator.config(config)
    return config.head_shape(vocab_size)


def _phase_costs(recipe: Recipe) -> tuple[PhaseCost, ...]:
    config, vocab_size, training = recipe.encoder, recipe.tokenizer.vocab_size, recipe.training
    costs = []
    for phase in training.phases:
        learning = training_flops_per_token(recipe, vocab_size, length=phase.max_length)
        forward_and_backward = flops_per_token(config, length=phase.max_length)
        tokens = phase.share * training.steps * training.batch_sequences * phase.max_length
        costs.append(PhaseCost(phase.max_length, phase.share, learning, forward_and_backward / 3, tokens * learning))
    return tuple(costs)
