"""Initial weights: each parameter from a generator of its own, keyed by its name.

So a further head or layer changes no other parameter, and the weights are the same on every device.
"""

import math

import torch
from torch import Tensor, nn

from maskwright.core.randomness import integer_key
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.neighbor_attention import attend_to_neighbors
from maskwright.model.sublayers import FeedForward, SelfAttention


def initialize(module: nn.Module, config: EncoderConfig, seed: int) -> None:
    """Initialize all parameters of a model in place, heads included.

    | parameter | value |
    | --- | --- |
    | matrices | `config.initializer` with standard deviation `config.initializer_range` |
    | the same in attention's and feed-forward's output layers | that by sqrt(2 L), if "megatron" |
    | LayerNorm weights | 1 |
    | biases | 0 (training may set the MLM head's to token frequencies, see `VocabularyObjective.prepare`) |
    | rows that RoBERTa's padding uses | 0 |

    "truncated_normal" is TensorFlow's: values beyond two standard deviations are sampled again, so that the result
    has 0.88 of the nominal standard deviation (`create_initializer` in modeling.py of Google's BERT).
    Encoders with `initial_attention` "neighbors" then attend to neighboring tokens (`neighbor_attention`). `module` is
    the whole model, since parameter names are part of the randomness.
    """
    norms = {id(each.weight) for each in module.modules() if isinstance(each, nn.LayerNorm)}
    outputs = _output_matrices(module) if config.initializer == "megatron" else frozenset()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if id(parameter) in norms:
                parameter.fill_(1)
            elif parameter.dim() < 2:
                parameter.zero_()
            else:
                # The word, in this spelling, is part of the key.
                values = _matrix(parameter.shape, config, integer_key(seed, f"initialisation {name}"))
                parameter.copy_(values / math.sqrt(2 * config.num_layers) if id(parameter) in outputs else values)
                _clear_padding(name, parameter, config)
    for each in module.modules():
        if isinstance(each, Encoder) and each.config.initial_attention == "neighbors":
            attend_to_neighbors(each)


def start_from_vectors(module: nn.Module, vectors: Tensor, seed: int) -> None:
    """Turn the rows of word embeddings, in place, into the directions of vectors of the same tokens.

    Of the whole model `module`, after `initialize`: in encoders with `initial_embeddings` "cooccurrence". A row keeps
    its length, so padding's stays zero. A random rotation, another one for each seed, spreads the vectors over all
    columns, as activations of random rows are. Narrower embeddings keep the first columns of the vectors.

    Args:
        vectors: Shape (V, size), the most important columns first; rows of zeros leave the random ones.
    """
    with torch.no_grad():
        for name, each in module.named_modules():
            if isinstance(each, Encoder) and each.config.initial_embeddings == "cooccurrence":
                table = each.word_embeddings.weight
                size = min(table.shape[1], vectors.shape[1])
                generator = torch.Generator().manual_seed(integer_key(seed, f"initial embeddings {name}"))
                rotation = nn.init.orthogonal_(torch.empty(table.shape[1], size), generator=generator)
                directions = vectors[:, :size] / vectors[:, :size].norm(dim=1, keepdim=True).clamp_min(1e-12)
                known = directions.any(dim=1, keepdim=True)
                lengths = table.norm(dim=1, keepdim=True)
                table.copy_(torch.where(known, lengths * (directions @ rotation.T), table))


def _output_matrices(module: nn.Module) -> frozenset[int]:
    sublayers = [each for each in module.modules() if isinstance(each, SelfAttention | FeedForward)]
    return frozenset(
        id(each.output.weight if isinstance(each, SelfAttention) else each.dense_out.weight) for each in sublayers
    )


def _matrix(shape: torch.Size, config: EncoderConfig, key: int) -> Tensor:
    generator = torch.Generator().manual_seed(key)
    values = torch.empty(shape, dtype=torch.float32, device="cpu")
    deviation = config.initializer_range
    if config.initializer == "normal":
        return values.normal_(0, deviation, generator=generator)
    return nn.init.trunc_normal_(values, 0, deviation, -2 * deviation, 2 * deviation, generator=generator)


def _clear_padding(name: str, parameter: Tensor, config: EncoderConfig) -> None:
    # fairseq counts positions from the padding id + 1 and holds that id's row of both tables at zero, so a
    # position offset tells the padding id (fairseq: modules/learned_positional_embedding.py). Google's BERT
    # has no offset and initializes the [PAD] row like all others.
    if not config.position_offset:
        return
    if name.endswith("position_embeddings.weight"):
        parameter[: config.position_offset].zero_()
    elif name.endswith("word_embeddings.weight") and config.position_offset <= len(parameter):
        parameter[config.position_offset - 1].zero_()
