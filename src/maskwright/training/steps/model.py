"""The model of a recipe: an encoder, perhaps a generator, and one head for each objective; perhaps a teacher."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from maskwright.checkpoints.checkpoint import EncoderWithHeads
from maskwright.core.tensors import EncodedBatch, EncoderOutput, LossInputs, LossTerm, PackedBatch, TargetTensors
from maskwright.core.types import IntArray
from maskwright.kernels import ops
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.initialization import initialize, start_from_vectors
from maskwright.pretext.objectives.base import Objective, by_encoder
from maskwright.recipes.recipe import SHARED_EMBEDDINGS, Recipe
from maskwright.training.steps.batches import MicroBatch

_GENERATOR_KEY = 0x5BD1E995


class PretrainingModel(nn.Module):
    """An encoder with the heads of its objectives. Parameter names are "encoder.*", "generator.*", "heads.KIND.*".

    With a generator, objectives that are `on_generator` use it, and the encoder sees the tokens it samples in place of
    the selected ones, without gradient (Clark et al. 2020, section 2).

    Args:
        shares_embeddings: Whether the generator uses the encoder's embeddings and their LayerNorm.
        teacher: A trained model that sees every batch too; it is no part of the weights. None for none.
    """

    def __init__(
        self,
        config: EncoderConfig,
        vocab_size: int,
        objectives: tuple[Objective, ...],
        *,
        generator: EncoderConfig | None = None,
        shares_embeddings: bool = True,
        teacher: EncoderWithHeads | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.objectives = objectives
        self.teacher = teacher
        self._passes: dict[str, Callable[[PackedBatch, Tensor | None], EncoderOutput]] = {}
        self.encoder = Encoder(config, vocab_size)
        self.generator = None if generator is None else Encoder(generator, vocab_size)
        self.shares_embeddings = shares_embeddings and generator is not None
        if self.generator is not None and self.shares_embeddings:
            for part in SHARED_EMBEDDINGS:
                setattr(self.generator, part, getattr(self.encoder, part))
        self.objectives_of = by_encoder(objectives, has_generator=generator is not None)
        self.heads = nn.ModuleDict(
            {
                objective.kind: objective.head(self._encoder(name).config.head_shape(vocab_size))
                for name, on_encoder in self.objectives_of.items()
                for objective in on_encoder
            }
        )

    def initialize(
        self, seed: int, token_counts: IntArray | None = None, token_vectors: NDArray[np.float32] | None = None
    ) -> None:
        """Initialize all weights, each parameter with random numbers keyed by the seed and its name.

        Some heads start from `token_counts`, the occurrences of each id in the corpus, shape (V,), and some encoders
        from `token_vectors` (`start_from_vectors`).
        """
        initialize(self, self.config, seed)
        if token_vectors is not None:
            start_from_vectors(self, token_vectors, seed)
        for objective in self.objectives:
            objective.prepare(self.heads[objective.kind], token_counts)

    def losses(self, micro_batch: MicroBatch) -> dict[str, LossTerm]:
        """Run each encoder once and every objective's head at its targets; return the losses by objective."""
        batch, targets, positions = micro_batch.batch, micro_batch.targets, micro_batch.output_positions
        terms: dict[str, LossTerm] = {}
        if self.generator is not None:
            key = batch.dropout_key
            generator_batch = batch if key is None else replace(batch, dropout_key=key ^ _GENERATOR_KEY)
            terms = self._losses_of("generator", generator_batch, targets, positions.get("generator"))
            batch = _with_samples(batch, targets, terms)
        terms |= self._losses_of("encoder", batch, targets, positions.get("encoder"))
        return {objective.kind: terms[objective.kind] for objective in self.objectives}

    def _losses_of(
        self, name: str, batch: PackedBatch, targets: Mapping[str, TargetTensors], output_positions: Tensor | None
    ) -> dict[str, LossTerm]:
        objectives, encoder = self.objectives_of[name], self._encoder(name)
        if not objectives:
            return {}
        heads = {objective.kind: self.heads[objective.kind] for objective in objectives}
        layer = _qkv_layer(objectives, encoder.config, of_teacher=False)
        if layer is None:
            output = self._passes.get(name, encoder)(batch, output_positions)
        else:  # CUDA graphs give hidden states only.
            output = encoder(batch, output_positions, layer)
        encoded = EncodedBatch(
            ids=batch.ids, output=output, word_embeddings=encoder.word_embeddings.weight, heads=heads
        )
        teacher = None
        if self.teacher is not None and any("teacher" in objective.needs for objective in objectives):
            layer = _qkv_layer(objectives, self.teacher.encoder.config, of_teacher=True)
            teacher = self.teacher.encode_batch(batch, layer)
        return {
            objective.kind: objective.loss(
                heads[objective.kind],
                LossInputs(encoded=encoded, targets=targets[objective.kind], teacher=teacher, batch=batch),
            )
            for objective in objectives
        }

    def _encoder(self, name: str) -> Encoder:
        return cast(Encoder, getattr(self, name))

    @property
    def uses_graphs(self) -> bool:
        """Whether the encoders are computed by CUDA graphs where that is supported."""
        return bool(self._passes)

    def capture_passes(self) -> None:
        """Compute the encoders by CUDA graphs from now on, where that is supported."""
        self._passes = {name: ops.capture(self._encoder(name)) for name in self.objectives_of}

    def release_passes(self) -> None:
        """Undo `capture_passes`."""
        self._passes = {}


def build_model(recipe: Recipe, vocab_size: int, teacher: EncoderWithHeads | None = None) -> PretrainingModel:
    """Build the model of a recipe, uninitialized."""
    generator, _ = recipe.encoders.get("generator", (None, ()))
    return PretrainingModel(
        recipe.encoder,
        vocab_size,
        recipe.objectives,
        generator=generator,
        shares_embeddings=recipe.generator is not None and recipe.generator.shared == "embeddings",
        teacher=teacher,
    )


def _qkv_layer(objectives: Iterable[Objective], config: EncoderConfig, *, of_teacher: bool) -> int | None:
    """Return the layer whose queries, keys and values the objectives use; at most one of them uses any."""
    layers = (each.qkv_layer(config.num_layers, of_teacher=of_teacher) for each in objectives)
    return next((layer for layer in layers if layer is not None), None)


def _with_samples(
    batch: PackedBatch, targets: Mapping[str, TargetTensors], terms: Mapping[str, LossTerm]
) -> PackedBatch:
    """Replace the selected tokens by the generator's samples, including those left unchanged in its input.

    As in electra: pretrain_helpers.py. Targets may carry other samples (`kernel_check.with_samples`).
    """
    ((kind, term),) = terms.items()
    sampled = targets[kind].extra.get("samples", term.sampled)
    assert sampled is not None, "the batch has no random numbers to sample with"
    return replace(batch, ids=batch.ids.index_copy(0, targets[kind].positions, sampled))
