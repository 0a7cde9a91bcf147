"""What a recipe costs before anything is trained: parameters by part, operations, memory."""

from dataclasses import dataclass

import torch

from maskwright.core.tensors import HeadShape
from maskwright.encoder.sizes import count_parameters, flops_per_token, memory, mlm_head_parameters
from maskwright.recipes.recipe import Recipe


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
        masked_lm: Encoder without pooler and a masked-language-model head: what fills blanks.
        phases: Operations at each length of the published schedule.
        memory: Bytes in training by kind, fp32 with AdamW; activations come on top.
    """

    parts: dict[str, int]
    pooler: int
    heads: dict[str, int]
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
        """Parameters in pre-training: encoder, pooler and the heads of all objectives."""
        return self.encoder_and_pooler + sum(self.heads.values())

    @property
    def training_flops(self) -> float:
        """FLOPs of the whole published training, every sequence full."""
        return sum(phase.total for phase in self.phases)


def sizes(recipe: Recipe) -> Sizes:
    """Count a recipe's parameters, operations and memory; nothing is built but the heads, without memory.

    Example:
        >>> sizes(catalog.get("bert/base")).encoder_and_pooler
        109482240
    """
    config, vocab_size = recipe.encoder, recipe.tokenizer.vocab_size
    parts = count_parameters(config, vocab_size)
    pooler = parts.pop("pooler")
    heads = _head_parameters(recipe)
    return Sizes(
        parts={name: count for name, count in parts.items() if count},
        pooler=pooler,
        heads=heads,
        masked_lm=sum(parts.values()) + mlm_head_parameters(config, vocab_size),
        phases=_phase_costs(recipe),
        memory=memory(config, vocab_size, sum(heads.values())),
    )


def _head_parameters(recipe: Recipe) -> dict[str, int]:
    config = recipe.encoder
    shape = HeadShape(
        hidden_size=config.hidden_size,
        embedding_size=config.embedding_width,
        vocab_size=recipe.tokenizer.vocab_size,
        hidden_activation=config.hidden_activation,
        layer_norm_eps=config.layer_norm_eps,
    )
    # On the meta device a module has shapes and no memory, so this works for any objective at any size.
    with torch.device("meta"):
        return {
            objective.kind: sum(parameter.numel() for parameter in objective.head(shape).parameters())
            for objective in recipe.objectives
        }


def training_flops_per_token(
    recipe: Recipe,
    vocab_size: int,
    *,
    length: float,
    targets_per_token: float | None = None,
    sequences_per_token: float | None = None,
) -> float:
    """Return the training FLOPs per real token of a recipe, heads counted, by the formula of `encoder.sizes`.

    Args:
        recipe: What is trained.
        vocab_size: Entries of the vocabulary.
        length: Mean number of tokens attended, in tokens.
        targets_per_token: Token predictions per real token, added up over the objectives; None takes the rate of
            the recipe's masking for each objective that predicts tokens.
        sequences_per_token: Sequences per real token; None means 1 / `length`.
    """
    if targets_per_token is None:
        targets_per_token = recipe.masking.rate * sum(each.predicts == "token" for each in recipe.objectives)
    return flops_per_token(
        recipe.encoder,
        vocab_size,
        length=length,
        targets_per_token=targets_per_token,
        sequences_per_token=sequences_per_token,
        pair_classes=sum(objective.classes for objective in recipe.objectives),
    )


def _phase_costs(recipe: Recipe) -> tuple[PhaseCost, ...]:
    config, vocab_size, training = recipe.encoder, recipe.tokenizer.vocab_size, recipe.training
    costs = []
    for phase in training.phases:
        learning = training_flops_per_token(recipe, vocab_size, length=phase.max_length)
        forward_and_backward = flops_per_token(config, vocab_size, length=phase.max_length, targets_per_token=0.0)
        tokens = phase.share * training.steps * training.batch_sequences * phase.max_length
        costs.append(PhaseCost(phase.max_length, phase.share, learning, forward_and_backward / 3, tokens * learning))
    return tuple(costs)
