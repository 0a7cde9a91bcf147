"""The published training of a recipe: optimizer, schedule, batch size, steps, sequence lengths."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt, model_validator

from maskwright.core.spec import ByName, Conditions, Spec

Rate = Annotated[float, Field(ge=0, lt=1)]

DECAY_SHARE = 0.2
"""Share of training in which the learning rate decays after a stable part (Hägele et al. 2024: 10 to 20 %)."""


class Optimizer(Spec):
    """Base of the optimizers, with their requirements of a run.

    Attributes:
        clips_itself: Whether it bounds its updates, so that gradients need no clipping.
        needs_large_batches: Whether it is made for batches of hundreds of sequences and more.
    """

    clips_itself: ClassVar[bool] = False
    needs_large_batches: ClassVar[bool] = False


class AdamW(Optimizer):
    """Adam with decoupled weight decay.

    Attributes:
        weight_decay: Per unit of learning rate.
        decayed: "matrices" excludes biases and LayerNorm (BERT), "all" decays every parameter (fairseq).
        bias_correction: False in Google's BERT (optimization.py:57-74), true in fairseq and torch.
    """

    kind: Literal["adamw"] = "adamw"
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-6
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    decayed: Literal["matrices", "all"] = "matrices"
    bias_correction: bool = True


class Lamb(Optimizer):
    """LAMB (You et al. 2020) as in ALBERT's code (lamb_optimizer.py:40-122).

    Adam's update without bias correction plus the weight decay is scaled to the norm of the matrix that it changes, so
    that each matrix changes by the same fraction of its norm, the learning rate. Biases and LayerNorm are neither
    decayed nor scaled. The ratio of the norms is not clipped; it is 1 if either is zero.
    """

    needs_large_batches = True

    kind: Literal["lamb"] = "lamb"
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-6
    weight_decay: Annotated[float, Field(ge=0)] = 0.01


class Muon(Optimizer):
    """Muon (Jordan et al. 2024) for the matrices of the layers, AdamW for embeddings, heads and vectors.

    Attributes:
        matrix_learning_rate: Peak for the matrices; they follow the schedule of `Training.learning_rate`, which is the
            peak of AdamW. The default is measured in a run of 400,000 tokens (LOG.md).
        momentum: Of the matrices, Nesterov's; `betas` and `eps` are AdamW's.
        weight_decay: Per unit of learning rate, of all matrices and embeddings.
    """

    kind: Literal["muon"] = "muon"
    matrix_learning_rate: Annotated[float, Field(gt=0)] = 0.005
    momentum: Rate = 0.95
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-6
    weight_decay: Annotated[float, Field(ge=0)] = 0.01


class StableAdamW(Optimizer):
    """StableAdamW (Wortsman et al. 2023) as in ModernBERT's recipe: AdamW with the rate clipped for each parameter.

    The rate of a parameter is divided by the root mean square of g / max(sqrt(v), eps), if that is more than 1, with
    the gradient g and Adam's second moment v, debiased. It replaces gradient clipping (`Training.clip_norm` = 0).

    Attributes:
        weight_decay_per_step: Of matrices and embeddings, at the peak of the learning rate; AdamW's is per unit of
            learning rate.
    """

    clips_itself = True

    kind: Literal["stable_adamw"] = "stable_adamw"
    betas: tuple[Rate, Rate] = (0.9, 0.98)
    eps: Annotated[float, Field(gt=0)] = 1e-6
    weight_decay_per_step: Annotated[float, Field(ge=0, lt=1)] = 1e-5


OptimizerSpec = Annotated[AdamW | Lamb | Muon | StableAdamW, Field(discriminator="kind"), ByName]


class LengthPhase(Spec):
    """A part of training at one sequence length.

    Attributes:
        share: Fraction of the steps; the shares of all phases add up to 1.
        max_length: Tokens of a sequence, special tokens included.
    """

    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_length: Annotated[int, Field(ge=8)] = 512


class Training(Spec):
    """The published training schedule.

    Attributes:
        phases: Sequence lengths, in order (BERT: 90 % at 128, then 10 % at 512).
        learning_rate: Its peak, after `warmup_steps` of the `steps`.
        schedule: "linear" (warmup, then linear decay to 0: fairseq), "linear_jump" (Google's BERT: the decay is counted
            from step 0, so the rate jumps down after the warmup), "linear_product" (ELECTRA: warmup times decay),
            "warmup_stable_decay" (warmup, then the peak, and in the last `decay_share` of the steps a decay by the
            square root: ModernBERT).
        decay_share: Only for "warmup_stable_decay".
        clip_norm: Maximum global norm of the gradients; 0 turns clipping off.
    """

    used_with: ClassVar[Conditions] = {
        "decay_share": (("schedule", lambda schedule: schedule == "warmup_stable_decay"),),
    }

    steps: PositiveInt = 1_000_000
    batch_sequences: PositiveInt = 256
    phases: tuple[LengthPhase, ...] = (LengthPhase(),)
    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    warmup_steps: Annotated[int, Field(ge=0)] = 10_000
    schedule: Literal["linear", "linear_jump", "linear_product", "warmup_stable_decay"] = "linear"
    decay_share: Annotated[float, Field(gt=0, le=1)] = DECAY_SHARE
    clip_norm: Annotated[float, Field(ge=0)] = 1.0
    optimizer: OptimizerSpec = AdamW()

    @model_validator(mode="after")
    def _fits(self) -> "Training":
        total = sum(phase.share for phase in self.phases)
        if abs(total - 1) > 1e-6:
            raise ValueError(f"the shares of the length phases add up to {total:g}; make them add up to 1")
        if self.warmup_steps > self.steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} is more than steps {self.steps}; make it smaller")
        if self.schedule == "warmup_stable_decay" and self.warmup_steps > (1 - self.decay_share) * self.steps + 1:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} of {self.steps} steps overlap with the decay in the last "
                f"{self.decay_share:g} of them; make warmup_steps or decay_share smaller"
            )
        return self

    @property
    def max_length(self) -> int:
        return max(phase.max_length for phase in self.phases)
