"""The model put together: an encoder and one head for each objective of a recipe; perhaps a generator, a teacher."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from maskwright.core.errors import ConversionError
from maskwright.core.tensors import LossInputs, LossTerm, PackedBatch, TargetTensors, View
from maskwright.core.types import IntArray
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.initialization import initialize
from maskwright.model.sizes import skipped_flops_per_token
from maskwright.pretext.objectives.base import Objective
from maskwright.recipes.recipe import SHARED_EMBEDDINGS, Recipe
from maskwright.training.batches import MicroBatch, StepBatch
from maskwright.training.teacher import TeacherModel
from maskwright.training.towers import objectives_by_tower

_GENERATOR_KEY = 0x5BD1E995
# Above this share of the tokens, gathering them is taken to cost what the last layer saves: a guess, not measured.
_MAX_OUTPUT_SHARE = 0.75


class PretrainingModel(nn.Module):
    """An encoder with the heads of its objectives. Parameter names are "encoder.*", "generator.*", "heads.KIND.*".

    With a generator, objectives that are `on_generator` sit on it, and the encoder sees the tokens it draws in place
    of the selected ones, without gradient (Clark et al. 2020, section 3.1).

    Args:
        config: The encoder's shape.
        vocab_size: Rows of the word embeddings.
        objectives: What is asked back; each builds its head.
        generator: The generator's shape; None for none.
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
        teacher: TeacherModel | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.objectives = objectives
        self.teacher = teacher
        self._kept_draws: dict[tuple[str, int], Tensor] | None = None
        self.encoder = Encoder(config, vocab_size)
        self.generator = None if generator is None else Encoder(generator, vocab_size)
        self._shares_embeddings = shares_embeddings and generator is not None
        if self.generator is not None and self._shares_embeddings:
            for part in SHARED_EMBEDDINGS:
                setattr(self.generator, part, getattr(self.encoder, part))
        self._on_encoder, self._on_generator = objectives_by_tower(objectives, generator=generator is not None)
        under = {objective.kind: config for objective in self._on_encoder}
        if generator is not None:
            under |= {objective.kind: generator for objective in self._on_generator}
        self.heads = nn.ModuleDict(
            {objective.kind: objective.head(under[objective.kind].head_shape(vocab_size)) for objective in objectives}
        )

    def initialize(self, seed: int, token_counts: IntArray | None = None) -> None:
        """Draw all weights, each parameter from a generator keyed by the seed and its name.

        Args:
            seed: The run's seed.
            token_counts: Shape (V,), how often each id stands in the corpus, for heads that begin from it.
        """
        initialize(self, self.config, seed)
        for objective in self.objectives:
            objective.prepare(self.heads[objective.kind], token_counts)

    def losses(self, micro_batch: MicroBatch) -> dict[str, LossTerm]:
        """Run each encoder once and every objective's head at its targets.

        Returns:
            For each objective, by kind, the summed loss and its count.
        """
        micro_batch = self.with_output_positions(micro_batch)
        batch, targets, positions = micro_batch.batch, micro_batch.targets, micro_batch.output_positions
        assert positions is not None
        terms: dict[str, LossTerm] = {}
        if self.generator is not None:
            batch_there, asked = _with_own_dropout(batch), self._on_generator
            terms = self._losses_on(self.generator, asked, batch_there, targets, positions["generator"])
            batch, targets = _filled(batch, targets, self._drawn_again(batch, terms), self.objectives)
        terms |= self._losses_on(self.encoder, self._on_encoder, batch, targets, positions["encoder"])
        return {objective.kind: terms[objective.kind] for objective in self.objectives}

    @contextmanager
    def repeated_samples(self) -> Iterator[None]:
        """Make the generator sample the same tokens on every pass over a batch while the block runs.

        For comparing kernels: a random number at the border of two tokens gives either.
        """
        self._kept_draws = {}
        try:
            yield
        finally:
            self._kept_draws = None

    def _drawn_again(self, batch: PackedBatch, terms: Mapping[str, LossTerm]) -> dict[str, LossTerm]:
        kept = self._kept_draws
        if kept is None:
            return dict(terms)
        which = int(batch.ids.sum())
        return {
            kind: term if term.sampled is None else replace(term, sampled=kept.setdefault((kind, which), term.sampled))
            for kind, term in terms.items()
        }

    def with_output_positions(self, micro_batch: MicroBatch) -> MicroBatch:
        """Return a micro-batch with its output positions; computed on the CPU, no GPU has to wait for them.

        Args:
            micro_batch: On any device.
        """
        if micro_batch.output_positions is not None:
            return micro_batch
        batch, targets = micro_batch.batch, micro_batch.targets
        return replace(
            micro_batch,
            output_positions={
                name: output_positions_of(asked, batch, targets, pools=encoder.pooler is not None) if asked else None
                for name, encoder, asked in self._towers()
            },
        )

    def placed(self, batch: StepBatch) -> StepBatch:
        """Return a step's micro-batches as `losses` takes them, on the model's device."""
        device = next(self.parameters()).device
        return replace(
            batch, micro_batches=tuple(self.with_output_positions(each).to(device) for each in batch.micro_batches)
        )

    def _towers(self) -> Iterator[tuple[str, Encoder, Sequence[Objective]]]:
        yield "encoder", self.encoder, self._on_encoder
        if self.generator is not None:
            yield "generator", self.generator, self._on_generator

    def _losses_on(
        self,
        encoder: Encoder,
        asked: Sequence[Objective],
        batch: PackedBatch,
        targets: Mapping[str, TargetTensors],
        output_positions: Tensor | None,
    ) -> dict[str, LossTerm]:
        if not asked:
            return {}
        heads = {objective.kind: self.heads[objective.kind] for objective in asked}
        view = View(
            output=encoder(batch, output_positions), word_embeddings=encoder.word_embeddings.weight, heads=heads
        )
        teacher = None
        if self.teacher is not None and any("teacher" in objective.needs for objective in asked):
            teacher = self.teacher.look(batch)
        return {
            objective.kind: objective.loss(
                heads[objective.kind], LossInputs(view=view, targets=targets[objective.kind], teacher=teacher)
            )
            for objective in asked
        }

    def skipped_flops(self, micro_batch: MicroBatch) -> float:
        """Return the training FLOPs saved because the last layers compute the output positions only.

        Args:
            micro_batch: As `losses` takes it.
        """
        positions, skipped = self.with_output_positions(micro_batch).output_positions, 0.0
        assert positions is not None
        for name, encoder, _ in self._towers():
            used = positions[name]
            if used is not None:
                skipped += (micro_batch.batch.num_tokens - len(used)) * skipped_flops_per_token(encoder.config)
        return skipped

    def weights(self) -> dict[str, Tensor]:
        """Return all weights by name, those that encoder and generator share once, as the encoder's."""
        state = self.state_dict()
        if self._shares_embeddings:
            shared = tuple(f"generator.{part}." for part in SHARED_EMBEDDINGS)
            state = {name: tensor for name, tensor in state.items() if not name.startswith(shared)}
        return dict(state)

    def generator_weights(self) -> dict[str, Tensor]:
        """Return the generator's weights and its heads', whole, named as those of a model: "encoder.*", "heads.*"."""
        on_generator = tuple(f"heads.{each.kind}." for each in self._on_generator)
        return {
            name.replace("generator.", "encoder.", 1): tensor
            for name, tensor in self.state_dict().items()
            if name.startswith(("generator.", *on_generator))
        }

    def encoder_weights(self) -> dict[str, Tensor]:
        """Return the weights of the encoder and of the heads on it."""
        theirs = tuple(f"heads.{each.kind}." for each in self._on_encoder)
        return {name: tensor for name, tensor in self.state_dict().items() if name.startswith(("encoder.", *theirs))}

    def load(self, state: Mapping[str, Tensor], source: str) -> None:
        """Take all weights from a state dict of exactly this model.

        Raises:
            ConversionError: If a name is missing or too many, or a shape differs.
        """
        own = self.weights()
        wrong = [
            f"{name}: found {tuple(state[name].shape)}, expected {tuple(own[name].shape)}"
            for name in own
            if name in state and state[name].shape != own[name].shape
        ]
        missing, extra = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
        if wrong or missing or extra:
            found = "; ".join(
                text
                for text in (
                    f"missing {', '.join(missing[:5])}" if missing else "",
                    f"unknown {', '.join(extra[:5])}" if extra else "",
                    "; ".join(wrong[:5]),
                )
                if text
            )
            raise ConversionError(f"the weights in {source} do not fit the recipe: {found}")
        # Every name was compared above; what is not in `own` is shared and comes with its first name.
        self.load_state_dict(dict(state), strict=False)


def build_model(recipe: Recipe, vocab_size: int, teacher: TeacherModel | None = None) -> PretrainingModel:
    """Build the model of a recipe, uninitialised.

    Args:
        recipe: What is trained.
        vocab_size: Rows of the word embeddings.
        teacher: The recipe's teacher, loaded.
    """
    generator = recipe.generator
    return PretrainingModel(
        recipe.encoder,
        vocab_size,
        recipe.objectives,
        generator=None if generator is None else generator.config(recipe.encoder),
        shares_embeddings=generator is not None and generator.shared == "embeddings",
        teacher=teacher,
    )


def output_positions_of(
    objectives: Sequence[Objective], batch: PackedBatch, targets: Mapping[str, TargetTensors], *, pools: bool
) -> Tensor | None:
    """Return the tokens whose last hidden states the objectives of one encoder use, or None for all.

    Args:
        objectives: What is asked of the encoder.
        batch: What it sees.
        targets: Targets by objective; their anchors are output positions too.
        pools: Whether the encoder has a pooler, which uses the first token of each sequence.

    Returns:
        Shape (W,), int64, ascending. None where most tokens are used, or none.
    """
    if any(objective.predicts == "every_token" for objective in objectives):
        return None
    places = [batch.first_tokens] if pools else []
    for objective in objectives:
        if objective.predicts == "token":
            wanted = targets[objective.kind]
            places += [wanted.positions, *wanted.anchors.values()]
    if not places:
        return None
    positions = torch.unique(torch.cat(places))
    return positions if 0 < len(positions) <= _MAX_OUTPUT_SHARE * batch.num_tokens else None


def _with_own_dropout(batch: PackedBatch) -> PackedBatch:
    """The generator drops other places than the encoder."""
    key = batch.dropout_key
    return batch if key is None else replace(batch, dropout_key=key ^ _GENERATOR_KEY)


def _filled(
    batch: PackedBatch,
    targets: Mapping[str, TargetTensors],
    terms: Mapping[str, LossTerm],
    objectives: tuple[Objective, ...],
) -> tuple[PackedBatch, dict[str, TargetTensors]]:
    """Put the drawn tokens in, and tell detection objectives which tokens differ from the original now.

    Every selected position gets a drawn token, also those that were left as they were for the generator (electra:
    pretrain_helpers.py). A token drawn right counts as original.
    """
    (filler,) = (objective.kind for objective in objectives if objective.on_generator)
    positions, labels, drawn = targets[filler].positions, targets[filler].labels, terms[filler].sampled
    assert drawn is not None, "the batch carries no numbers to sample with"
    is_replaced = torch.zeros_like(batch.ids).index_copy_(0, positions, (drawn != labels).to(batch.ids.dtype))
    changed = {
        objective.kind: replace(targets[objective.kind], labels=is_replaced[targets[objective.kind].positions])
        for objective in objectives
        if "generator" in objective.needs
    }
    return replace(batch, ids=batch.ids.index_copy(0, positions, drawn)), {**targets, **changed}
