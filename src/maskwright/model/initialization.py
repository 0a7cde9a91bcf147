"""Initial weights: each parameter from a generator of its own, keyed by its name.

So a further head or layer changes no other parameter, and the weights are the same on every device.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
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


def start_from_vectors(module: nn.Module, vectors: NDArray[np.float32], seed: int) -> None:
    """Give each word embedding, in place, the direction of its token's vector; it keeps its norm.

    Of the whole model `module`, after `initialize`: in encoders with `initial_embeddings` "cooccurrence". A rotation by
    the seed spreads the vectors over all columns. Narrower embeddings keep the first columns of the vectors. Padding's
    row stays zero.

    Args:
        vectors: Shape (V, size), the most important columns first; rows of zeros leave the random ones.
    """
    started = set[int]()  # A generator may share the encoder's table.
    for name, each in module.named_modules():
        if not isinstance(each, Encoder) or each.config.initial_embeddings == "random":
            continue
        table = each.word_embeddings.weight
        if id(table) in started:
            continue
        started.add(id(table))
        width, size = table.shape[1], min(table.shape[1], vectors.shape[1])
        drawn = torch.empty(width, size, dtype=torch.float64)
        drawn.normal_(generator=torch.Generator().manual_seed(integer_key(seed, f"initial embeddings {name}")))
        with threadpool_limits(1):  # The number of threads would change the last bits.
            directions = vectors[:, :size] @ np.linalg.qr(drawn.numpy())[0].T
        directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        known = torch.from_numpy(vectors[:, :size].any(axis=1, keepdims=True))
        with torch.no_grad():
            rows = table.norm(dim=1, keepdim=True) * torch.from_numpy(directions.astype(np.float32))
            table.copy_(torch.where(known, rows, table))


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
