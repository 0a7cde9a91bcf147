"""Parameters, FLOPs and memory of a recipe, without building it."""

from collections.abc import Mapping
from dataclasses import dataclass

from maskwright.model.config import EncoderConfig
from maskwright.model.sizes import count_parameters, flops_per_token, memory, total_parameters
from maskwright.pretext.objectives import TeacherObjective
from maskwright.pretext.objectives.mlm import MaskedLanguageModeling
from maskwright.recipes.recipe import SHARED_EMBEDDINGS, Recipe

_MASKED_LM = MaskedLanguageModeling()
_SHARED = tuple(part.replace("_", " ") for part in SHARED_EMBEDDINGS)
"""The shared parts, as `count_parameters` names them."""


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """FLOPs at one sequence length, for sequences of exactly this length.

    Attributes:
        share: Fraction of the steps at this length.
        training: FLOPs per token, forward and backward, heads included.
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
    """Parameters, FLOPs and memory of a recipe.

    Attributes:
        parts: Parameters of the encoder by part, without the pooler; shared blocks are counted once.
        pooler: Parameters of the pooler, or 0.
        heads: Parameters of each objective's head by kind, without the tied output matrix.
        generator: Parameters of the generator by part, without those shared with the encoder.
        masked_lm: Parameters of the masked language model: encoder without pooler, and its head; for ELECTRA the
            generator with its embeddings and head.
        phases: FLOPs at each length of the published schedule.
        memory: Bytes in training by kind, fp32 with AdamW or LAMB, and a teacher's weights; without activations.
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
        """Parameters in pretraining: encoder, pooler, generator and all heads."""
        return self.encoder_and_pooler + sum(self.generator.values()) + sum(self.heads.values())

    @property
    def training_flops(self) -> float:
        """FLOPs of the published training, all sequences at full length."""
        return sum(phase.total for phase in self.phases)


def sizes(recipe: Recipe) -> Sizes:
    config, vocab_size = recipe.encoder, recipe.tokenizer.vocab_size
    parts = count_parameters(config, vocab_size)
    pooler = parts.pop("pooler")
    heads: dict[str, int] = {
        each.kind: each.num_parameters(shape.head_shape(vocab_size))
        for shape, objectives in recipe.encoders.values()
        for each in objectives
    }
    masked_lm, masked_lm_config = sum(parts.values()), config
    generator: dict[str, int] = {}
    if recipe.generator is not None:
        masked_lm_config = recipe.generator.config(config)
        generator = count_parameters(masked_lm_config, vocab_size)
        masked_lm = sum(generator.values())
        if recipe.generator.shared == "embeddings":
            generator = {name: count for name, count in generator.items() if name not in _SHARED}
    return Sizes(
        parts={name: count for name, count in parts.items() if count},
        pooler=pooler,
        heads=heads,
        generator={name: count for name, count in generator.items() if count},
        masked_lm=masked_lm + _MASKED_LM.num_parameters(masked_lm_config.head_shape(vocab_size)),
        phases=_phase_costs(recipe),
        memory=memory(config, vocab_size, sum(heads.values()) + sum(generator.values())) | _teacher_memory(recipe),
    )


def embedding_sizes(recipe: Recipe) -> tuple[int, int]:
    """Return V x E + E x H, the weights of factorized word embeddings, and V x H; both are V x H if E is H."""
    config, vocab_size = recipe.encoder, recipe.tokenizer.vocab_size
    projection = config.embedding_width * config.hidden_size if config.projects_embeddings else 0
    return vocab_size * config.embedding_width + projection, vocab_size * config.hidden_size


def _teacher_memory(recipe: Recipe) -> dict[str, int]:
    """Bytes of the published teacher with its masked-token head; it has no gradients and no moments."""
    if recipe.teacher is None:
        return {}
    config = recipe.teacher.published_config(recipe.encoder).replace(pooler=False)
    vocab_size = recipe.tokenizer.vocab_size
    head = _MASKED_LM.num_parameters(config.head_shape(vocab_size))
    return {"teacher": 4 * (total_parameters(config, vocab_size) + head)}


def training_flops_per_token(
    recipe: Recipe,
    vocab_size: int,
    *,
    length: float,
    predictions_per_token: Mapping[str, float] | None = None,
    sequences_per_token: float | None = None,
    teacher: EncoderConfig | None = None,
) -> float:
    """Return the training FLOPs per token of a recipe, heads included, by the formula of `model.sizes`.

    A teacher and its head run forward only, so they count once, trained modules three times.

    Args:
        length: Mean number of tokens attended to.
        predictions_per_token: Predictions of each objective per token, by kind; None: those of full sequences
            (`Objective.predictions_per_token`).
        sequences_per_token: None means 1 / `length`.
        teacher: The shape of the recipe's teacher, if any; None: the published one (`Teacher.published_config`).
    """
    encoders, heads, distilled = 0.0, 0.0, 0.0
    if recipe.teacher is not None:
        teacher = (teacher or recipe.teacher.published_config(recipe.encoder)).replace(pooler=False)
        distilled = flops_per_token(teacher, length=length) / 3
    for config, objectives in recipe.encoders.values():
        encoders += flops_per_token(config, length=length, sequences_per_token=sequences_per_token)
        for objective in objectives:
            if predictions_per_token is None:
                share = objective.predictions_per_token(recipe.masking.rate, length)
            else:
                share = predictions_per_token.get(objective.kind, 0.0)
            heads += share * objective.flops(config.head_shape(vocab_size))
            if teacher is not None and isinstance(objective, TeacherObjective):
                if objective.needs_teacher_scores:
                    distilled += share * objective.flops(teacher.head_shape(vocab_size))
                relations = 2 * objective.relation_flops(config.hidden_size)
                distilled += share * length * (relations + objective.relation_flops(teacher.hidden_size))
    return encoders + 3 * heads + distilled


def _phase_costs(recipe: Recipe) -> tuple[PhaseCost, ...]:
    config, vocab_size, training = recipe.encoder, recipe.tokenizer.vocab_size, recipe.training
    costs = []
    for phase in training.phases:
        learning = training_flops_per_token(recipe, vocab_size, length=phase.max_length)
        forward_and_backward = flops_per_token(config, length=phase.max_length)
        tokens = phase.share * training.steps * training.batch_sequences * phase.max_length
        costs.append(PhaseCost(phase.max_length, phase.share, learning, forward_and_backward / 3, tokens * learning))
    return tuple(costs)
