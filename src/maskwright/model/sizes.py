"""Costs of an encoder: parameters, training FLOPs per token, bytes. Closed forms; nothing is instantiated.

**The FLOP formula.** A multiply and an add are two operations. Forward, per real token:

    2 (E H if projected) + L (8 H^2 + 4 n H + 4 H F)  dense layers, attention over n tokens; 6 H F if gated
  + s 2 H^2                                           pooler, once a sequence

and three times that for training: the backward pass has two matmuls for each of the forward pass. Objectives
count their heads (`Objective.flops`). Not counted are embedding look-ups, softmax, LayerNorm, activations and
the optimizer (each below a few per cent), and padding. n is the mean length attended, sum(l^2) / sum(l) over
sequences of lengths l: the length itself if all are equal. With a window of w to either side it is at most 2 w + 1.
"""

from maskwright.model.config import EncoderConfig


def count_parameters(config: EncoderConfig, vocab_size: int) -> dict[str, int]:
    """Count the encoder's parameters by part, in the order of the forward pass; shared sublayers count once.

    A part that the shape lacks counts 0.
    """
    embedding, hidden, inner = config.embedding_width, config.hidden_size, config.intermediate_size
    norm = (1 + config.norm_bias) * hidden
    biased = config.dense_bias
    attention = 4 * _dense(hidden, hidden, biased) + norm
    ffn = _dense(hidden, _inner_rows(config), biased) + _dense(inner, hidden, biased) + norm
    positions = config.position_offset + config.max_positions if config.positions == "absolute" else 0
    missing = 0 if config.first_attention_norm else norm
    return {
        "word embeddings": vocab_size * embedding,
        "position embeddings": positions * embedding,
        "segment embeddings": config.type_vocab_size * embedding,
        "embedding norm": (1 + config.norm_bias) * embedding,
        "embedding projection": _dense(embedding, hidden) if config.projects_embeddings else 0,
        "attention": len(set(config.layer_plan("attention"))) * attention - missing,
        "ffn": len(set(config.layer_plan("ffn"))) * ffn,
        "final norm": norm if config.norm_placement == "pre" else 0,
        "pooler": _dense(hidden, hidden) if config.pooler else 0,
    }


def total_parameters(config: EncoderConfig, vocab_size: int) -> int:
    return sum(count_parameters(config, vocab_size).values())


def flops_per_token(config: EncoderConfig, *, length: float, sequences_per_token: float | None = None) -> float:
    """Return the training FLOPs (forward and backward) per real token by the formula above.

    `length` is n, the mean number of tokens attended, and s is `sequences_per_token`, by default 1 / `length`.
    """
    embedding, hidden = config.embedding_width, config.hidden_size
    dense = 8 * hidden * hidden + _feed_forward_flops(config)
    attended = sum(_attended(length, config.window(layer)) for layer in range(config.num_layers))
    body = (
        config.num_layers * dense
        + 4 * attended * hidden
        + (2 * embedding * hidden if config.projects_embeddings else 0)
    )
    per_sequence = 2 * hidden * hidden if config.pooler else 0
    sequences = 1 / length if sequences_per_token is None else sequences_per_token
    return 3 * (body + sequences * per_sequence)


def skipped_flops_per_token(config: EncoderConfig) -> float:
    """Return the training FLOPs that the last layer saves per token that is no output position."""
    return 3.0 * (2 * config.hidden_size**2 + _feed_forward_flops(config))


def memory(config: EncoderConfig, vocab_size: int, head_parameters: int = 0) -> dict[str, int]:
    """Return the bytes that training holds, by kind, in fp32 with AdamW or LAMB; activations come on top."""
    parameters = total_parameters(config, vocab_size) + head_parameters
    return {"weights": 4 * parameters, "gradients": 4 * parameters, "optimizer": 8 * parameters}


def _dense(inputs: int, outputs: int, biased: bool = True) -> int:
    return inputs * outputs + outputs * biased


def _inner_rows(config: EncoderConfig) -> int:
    return config.intermediate_size * (2 if config.feed_forward == "gated" else 1)


def _feed_forward_flops(config: EncoderConfig) -> int:
    return 2 * config.hidden_size * (_inner_rows(config) + config.intermediate_size)


def _attended(length: float, window: int | None) -> float:
    return length if window is None else min(length, 2 * window + 1)
