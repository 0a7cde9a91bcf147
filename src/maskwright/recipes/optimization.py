"""How a recipe is trained, as published: optimizer, schedule, batch, steps, lengths."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from maskwright.core.spec import ByName, Spec

Rate = Annotated[float, Field(ge=0, lt=1)]


class AdamW(Spec):
    """Adam with decoupled weight decay.

    Attributes:
        betas: Decay rates of the first and second moment.
        eps: Added to the root of the second moment.
        weight_decay: Decoupled decay per unit of learning rate.
        decayed: "matrices" spares biases and LayerNorm (BERT), "all" decays every parameter (fairseq).
        bias_correction: False in Google's BERT (optimization.py:57-74), true in fairseq and torch.
    """

    kind: Literal["adamw"] = "adamw"
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-6
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    decayed: Literal["matrices", "all"] = "matrices"
    bias_correction: bool = True


class Lamb(Spec):
    """LAMB (You et al. 2020) as ALBERT's code has it (lamb_optimizer.py:40-122): Adam whose step keeps to the weights.

    Adam's update, without bias correction, plus the decay, is scaled to the norm of the matrix that it changes, so
    that each matrix moves by the same share of itself, the learning rate. Biases and LayerNorm are neither decayed nor
    scaled. The ratio of the norms is not clipped; it is 1 where either is zero.

    Attributes:
        betas: Decay rates of the first and second moment.
        eps: Added to the root of the second moment.
        weight_decay: Share of the weights added to the update, before its norm is taken.
    """

    kind: Literal["lamb"] = "lamb"
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-6
    weight_decay: Annotated[float, Field(ge=0)] = 0.01


OptimizerSpec = Annotated[AdamW | Lamb, Field(discriminator="kind"), ByName]


class LengthPhase(Spec):
    """A stretch of training at one sequence length.

    Attributes:
        share: Share of the budget spent at this length; the shares of all phases add up to 1.
        max_length: Tokens in a sequence, specials counted.
    """

    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_length: Annotated[int, Field(ge=8)] = 512


class Training(Spec):
    """The published training schedule.

    Attributes:
        steps: Optimizer steps.
        batch_sequences: Sequences in an optimizer step.
        phases: Sequence lengths, in order (BERT: 90 % at 128, then 10 % at 512).
        learning_rate: Peak learning rate.
        warmup_steps: Steps of linear warm-up, of `steps`.
        schedule: How the rate moves: "linear" (to the peak, then linearly to 0: fairseq), "linear_jump"
            (Google's BERT: the decay is counted from step 0, so the rate jumps down when warm-up ends),
            "linear_product" (ELECTRA: both factors at once).
        clip_norm: Gradients are scaled down to this global norm; 0 turns clipping off.
        optimizer: The optimizer and its constants.
    """

    steps: PositiveInt = 1_000_000
    batch_sequences: PositiveInt = 256
    phases: tuple[LengthPhase, ...] = (LengthPhase(),)
    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    warmup_steps: Annotated[int, Field(ge=0)] = 10_000
    schedule: Literal["linear", "linear_jump", "linear_product"] = "linear"
    clip_norm: Annotated[float, Field(ge=0)] = 1.0
    optimizer: OptimizerSpec = AdamW()

    @model_validator(mode="after")
    def _fits(self) -> "Training":
        total = sum(phase.share for phase in self.phases)
        if abs(total - 1) > 1e-6:
            raise ValueError(f"the shares of the length phases add up to {total:g}; make them add up to 1")
        if self.warmup_steps > self.steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} is more than steps {self.steps}; make it smaller")
        return self

    @property
    def max_length(self) -> int:
        """The longest sequence of all phases."""
        return max(phase.max_length for phase in self.phases)
