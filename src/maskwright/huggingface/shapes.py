"""The shapes that a model's weights must have, from its configuration; nothing is instantiated."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from maskwright.core.errors import ConversionError
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.pretext.objectives import (
    MaskedLanguageModeling,
    NextSentencePrediction,
    Objective,
    ReplacedTokenDetection,
    SentenceOrderPrediction,
)

# Those whose heads have one shape; the shapes of others follow their recipes, which are asked when they are used.
_OBJECTIVES: tuple[Objective, ...] = (
    MaskedLanguageModeling(),
    NextSentencePrediction(),
    SentenceOrderPrediction(),
    ReplacedTokenDetection(),
)
_NAMES_SHOWN = 6


def check_shapes(
    state: Mapping[str, Tensor],
    theirs: Mapping[str, str],
    config: EncoderConfig,
    vocab_size: int,
    task_shapes: Mapping[str, tuple[int, ...]],
    folder: Path,
) -> None:
    """Compare weights with what config.json says.

    Args:
        state: The weights by our names.
        theirs: What each is called in the file.
        config: The encoder's shape.
        vocab_size: V.
        task_shapes: The shapes of a head for labelled examples, by our names.
        folder: Where they were read, for the message.

    Raises:
        ConversionError: If some have another shape.
    """
    expected = {**_expected_shapes(config, vocab_size), **task_shapes}
    wrong = [name for name, tensor in state.items() if tensor.shape != expected.get(name, tensor.shape)]
    if wrong:
        shown = "; ".join(
            f"{theirs[name]} is {list(state[name].shape)}, expected {list(expected[name])}"
            for name in wrong[:_NAMES_SHOWN]
        )
        raise ConversionError(
            f"{len(wrong)} weights in {folder} do not have the shape that config.json says: {shown}",
            todo="Correct config.json (the sizes of vocabulary, hidden states, embeddings, feed-forward part, "
            "positions and segments, the labels) or fetch both files again",
        )


def _expected_shapes(config: EncoderConfig, vocab_size: int) -> dict[str, tuple[int, ...]]:
    shape = config.head_shape(vocab_size)
    with torch.device("meta"):
        modules: dict[str, nn.Module] = {"encoder": Encoder(config, vocab_size)}
        modules |= {f"heads.{objective.kind}": objective.head(shape) for objective in _OBJECTIVES}
    return {
        f"{start}.{name}": tensor.shape
        for start, module in modules.items()
        for name, tensor in module.state_dict().items()
    }
