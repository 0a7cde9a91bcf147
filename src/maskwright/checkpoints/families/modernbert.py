"""ModernBERT's family (Warner et al. 2024), also Ettin and mmBERT: pre-norm, rotary positions, windows, gates."""

from collections.abc import Mapping
from typing import Any, Literal

from maskwright.checkpoints.families.base import ConfigTable, DropoutEntry, Family, TaskHead
from maskwright.checkpoints.families.tables import SBO_HEAD, both, layers, mlm_head, task_heads, weight
from maskwright.core.errors import ConversionError
from maskwright.core.types import SpecialTokens
from maskwright.model.config import EncoderConfig

_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_THETAS = {
    "rope_theta": (_GLOBAL, "global_rope_theta", 160_000.0),
    "local_rope_theta": (_LOCAL, "local_rope_theta", 1e4),
}
_EVERY, _WINDOW = 3, 128


def _write(config: EncoderConfig, special_tokens: SpecialTokens) -> dict[str, Any]:
    kinds = [_GLOBAL if config.window(layer) is None else _LOCAL for layer in range(config.num_layers)]
    return {
        "layer_types": kinds,
        "global_attn_every_n_layers": 1 if config.attention_window is None else config.global_attention_every,
        "local_attention": _WINDOW if config.attention_window is None else 2 * config.attention_window,
        # The names before transformers 5, which text-embeddings-inference reads.
        "global_rope_theta": config.rope_theta,
        "local_rope_theta": config.local_rope_theta,
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": getattr(config, ours)}
            for ours, (kind, _, _) in _THETAS.items()
        },
        "mlp_bias": config.dense_bias,
        "classifier_bias": config.dense_bias,
        "embedding_dropout": config.hidden_dropout,
        "mlp_dropout": config.hidden_dropout,
        "cls_token_id": special_tokens.cls,
        "sep_token_id": special_tokens.sep,
    }


def _read(data: Mapping[str, Any], source: str) -> dict[str, Any]:
    biases = {name: data.get(name, False) for name in ("attention_bias", "mlp_bias", "classifier_bias")}
    if len(set(biases.values())) > 1:
        raise ConversionError(
            f"{source}: {', '.join(f'{name} is {value}' for name, value in biases.items())}, which maskwright does not "
            "support",
            allowed="the same value for all of them",
        )
    fields: dict[str, Any] = {"dense_bias": biases["attention_bias"]}
    rope = data.get("rope_parameters") or {}
    if data.get("rope_scaling") or not isinstance(rope, dict) or rope.keys() - {_GLOBAL, _LOCAL}:
        raise ConversionError(
            f"{source}: scaled rotary positions, or one set of them for all layers, are not supported",
            allowed=f"rope_parameters of {_GLOBAL} and {_LOCAL} with the rope_type 'default'",
        )
    for ours, (kind, old_name, default) in _THETAS.items():
        entries = rope.get(kind) or {}
        if not isinstance(entries, dict) or entries.get("rope_type", "default") != "default":
            raise ConversionError(
                f"{source}: rope_parameters of {kind} are {entries!r}, which maskwright does not support",
                allowed="the rope_type 'default' and a rope_theta",
            )
        fields[ours] = entries.get("rope_theta", data.get(old_name, default))
    return fields | _windows(data, source)


def _windows(data: Mapping[str, Any], source: str) -> dict[str, Any]:
    num_layers, width = data.get("num_hidden_layers", 22), data.get("local_attention", _WINDOW)
    every = data.get("global_attn_every_n_layers", _EVERY)
    if not all(type(number) is int and number > 0 for number in (num_layers, width, every)):
        raise ConversionError(
            f"{source}: num_hidden_layers is {num_layers!r}, local_attention {width!r}, global_attn_every_n_layers "
            f"{every!r}",
            allowed="positive integers",
        )
    kinds = data.get("layer_types") or [_LOCAL if layer % every else _GLOBAL for layer in range(num_layers)]
    if not isinstance(kinds, list) or len(kinds) != num_layers:
        raise ConversionError(f"{source}: layer_types is {kinds!r}", allowed=f"a list of {num_layers} kinds")
    if _LOCAL not in kinds:
        return {"attention_window": None, "local_rope_theta": 1e4}  # Without windows it has no effect.
    # The second layer that attends to everything gives the pattern.
    every = next((layer for layer, kind in enumerate(kinds) if layer and kind == _GLOBAL), max(2, len(kinds)))
    if kinds != [_LOCAL if layer % every else _GLOBAL for layer in range(len(kinds))]:
        raise ConversionError(
            f"{source}: layer_types {kinds} follow no regular pattern",
            allowed=f"{_GLOBAL} in every n-th layer from the first one, {_LOCAL} in the others",
        )
    return {"attention_window": width // 2, "global_attention_every": every}


_NAMES = layers(
    "layers.{n}.",
    *("attn.Wqkv.query", "attn.Wqkv.key", "attn.Wqkv.value"),
    *("attn.Wo", "attn_norm", "mlp.Wi", "mlp.Wo", "mlp_norm"),
)

_DROPOUT = DropoutEntry("classifier_dropout", assumed=0.0)


def _head(source: Literal["first", "tokens"], **constants: str) -> TaskHead:
    # The dense layer and the LayerNorm have the names, and in transformers the weights, of the masked-token head's.
    return TaskHead(
        source=source,
        dense="head.dense",
        activation="gelu",
        norm="head.norm",
        output="classifier",
        dropout=_DROPOUT,
        constants=constants,
    )


MODERNBERT = Family(
    name="modernbert",
    prefix="model.",
    body=(
        *weight("word_embeddings", "embeddings.tok_embeddings"),
        *both("embedding_norm", "embeddings.norm"),
        *_NAMES,
        *both("final_norm", "final_norm"),
    ),
    fused=(("attn.Wqkv", ("query", "key", "value")),),
    pooler=(),
    heads={"mlm": mlm_head("head.dense", "head.norm", "decoder.bias"), "sbo": SBO_HEAD},
    tasks=task_heads(
        "ModernBert",
        sequence=_head("first", classifier_pooling="cls"),
        choice=_head("first", classifier_pooling="cls"),
        token=_head("tokens"),
        span=_head("tokens"),
    ),
    tied=(("decoder.weight", "model.embeddings.tok_embeddings.weight"),),
    architectures=((frozenset({"mlm"}), "ModernBertForMaskedLM"), (frozenset(), "ModernBertModel")),
    # DEVIATION: the classes drop attention's output at the rate of its probabilities (`attention_dropout`), and the
    # feed-forward's inner values, not its output (`mlp_dropout`); ours drop both outputs at `hidden_dropout`.
    config=ConfigTable(
        fields=(
            ("hidden_size", "hidden_size", 768),
            ("num_layers", "num_hidden_layers", 22),
            ("num_heads", "num_attention_heads", 12),
            ("intermediate_size", "intermediate_size", 1152),
            ("layer_norm_eps", "norm_eps", 1e-5),
            ("norm_bias", "norm_bias", False),
            ("dense_bias", "attention_bias", False),
            ("hidden_dropout", "embedding_dropout", 0.0),
            ("attention_dropout", "attention_dropout", 0.0),
            ("initializer_range", "initializer_range", 0.02),
        ),
        activation=("hidden_activation", "gelu"),
        fixed={
            "type_vocab_size": 0,
            "positions": "rotary",
            "norm_placement": "pre",
            "first_attention_norm": False,
            "feed_forward": "gated",
            "sharing": "none",
        },
        constants={"decoder_bias": True, "classifier_activation": "gelu"},
        expresses=frozenset({"norm_bias", "dense_bias", "attention_window"}),
        vocab_size=50368,
        pad_token_id=50283,
        names_ends=True,
        initializer="megatron",
        head_activation="gelu",
        max_positions=8192,
        write=_write,
        read=_read,
    ),
)
