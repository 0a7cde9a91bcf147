"""The model put together: an encoder and one head for each objective of a recipe."""

from collections.abc import Mapping

from torch import Tensor, nn

from maskwright.core.errors import ConversionError
from maskwright.core.tensors import HeadShape, LossTerm
from maskwright.core.types import IntArray
from maskwright.encoder.config import EncoderConfig
from maskwright.encoder.encoder import Encoder
from maskwright.encoder.initialisation import initialise
from maskwright.pretext.objectives.base import Objective
from maskwright.training.batches import MicroBatch


class PretrainingModel(nn.Module):
    """An encoder with the heads of its objectives. Parameter names are "encoder.*" and "heads.KIND.*".

    Args:
        config: The encoder's shape.
        vocab_size: Rows of the word embeddings.
        objectives: What is asked back; each builds its head.
    """

    def __init__(self, config: EncoderConfig, vocab_size: int, objectives: tuple[Objective, ...]) -> None:
        super().__init__()
        self.config = config
        self.objectives = objectives
        self.encoder = Encoder(config, vocab_size)
        shape = HeadShape(
            hidden_size=config.hidden_size,
            embedding_size=config.embedding_width,
            vocab_size=vocab_size,
            hidden_activation=config.hidden_activation,
            layer_norm_eps=config.layer_norm_eps,
        )
        self.heads = nn.ModuleDict({objective.kind: objective.head(shape) for objective in objectives})

    def initialise(self, seed: int, token_counts: IntArray | None = None) -> None:
        """Draw all weights, each parameter from a generator keyed by the seed and its name.

        Args:
            seed: The run's seed.
            token_counts: Shape (V,), how often each id stands in the corpus, for heads that begin from it.
        """
        initialise(self, self.config, seed)
        for objective in self.objectives:
            objective.prepare(self.heads[objective.kind], token_counts)

    def losses(self, micro_batch: MicroBatch) -> dict[str, LossTerm]:
        """Run the encoder once and every objective's head at its targets.

        Returns:
            For each objective, by kind, the summed loss and its count.
        """
        output = self.encoder(micro_batch.batch)
        embeddings: Tensor = self.encoder.word_embeddings.weight
        return {
            objective.kind: objective.loss(
                self.heads[objective.kind], output, micro_batch.targets[objective.kind], embeddings
            )
            for objective in self.objectives
        }

    def load(self, state: Mapping[str, Tensor], source: str) -> None:
        """Take all weights from a state dict of exactly this model.

        Raises:
            ConversionError: If a name is missing or too many, or a shape differs.
        """
        own = self.state_dict()
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
        self.load_state_dict(dict(state))
