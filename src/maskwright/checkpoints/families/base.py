"""Types of the family tables: Hugging Face's names of weights and config fields.

A weight table lists pairs (ours, theirs). In their names "{n}" is the name of a layer ("3", or its group); in ours it
is the number of the distinct block that the layer uses.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from maskwright.core.types import FamilyName, HeadKind, SpecialTokens
from maskwright.model.config import EncoderConfig

Pair = tuple[str, str]
Field = tuple[str, str, Any]


def groups_of(config: EncoderConfig) -> int | None:
    """Return the number of ALBERT's groups that an encoder's sharing amounts to; None if it is another pattern."""
    if config.sharing == "none":
        return config.num_layers
    return config.num_groups if config.sharing == "all" and config.blocks_per_group == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigTable:
    """Fields of a family's config.json that describe the encoder's shape.

    Attributes:
        fields: (ours, theirs, the default of Hugging Face's class).
        activation: (theirs, default) for `hidden_activation`.
        fixed: Our fields that the file lacks, and the one value that the classes use.
        constants: Entries of the file that must have this value and are written.
        vocab_size, pad_token_id: Defaults of Hugging Face's class.
        positions_after_pad: Whether positions start at the padding id + 1 (RoBERTa).
        names_ends: Whether the file names the ids of a sequence's first and last token.
        initializer: The original's; not in the file.
        head_activation: The one activation of the classes' masked-token head; None where the head follows the file.
        grouped: Whether layers are in groups that share weights (ALBERT).
        max_positions: Default of Hugging Face's class.
        expresses: Further fields of `EncoderConfig` that the file may set to other values than their defaults.
        write, read: Functions for entries that are no single field of ours: from the shape and special tokens to
            entries, and from the file and its name to our fields. None without such entries.
    """

    fields: tuple[Field, ...]
    activation: tuple[str, str]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    vocab_size: int
    pad_token_id: int = 0
    positions_after_pad: bool = False
    names_ends: bool = False
    initializer: Literal["truncated_normal", "normal", "megatron"] = "truncated_normal"
    head_activation: str | None = None
    grouped: bool = False
    max_positions: int = 512
    expresses: frozenset[str] = frozenset()
    write: Callable[[EncoderConfig, SpecialTokens], dict[str, Any]] | None = None
    read: Callable[[Mapping[str, Any], str], dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class DropoutEntry:
    """The config.json entry of the dropout rate before a head's last layer, and the class's default.

    The class uses the rate of the hidden states where it has no entry (`name` None) or no default (`assumed` None).
    """

    name: str | None
    assumed: float | None = None

    def rate(self, stated: float | None, hidden_dropout: float) -> float:
        """Return the class's dropout rate; `stated` is the entry's value, None if missing or null."""
        rates = (stated if self.name else None, self.assumed, hidden_dropout)
        return next(rate for rate in rates if rate is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHead:
    """A head for labeled examples, as one class of a family computes it.

    Its scores are output(dropout(source)), with a dense layer output(dropout(activation(dense(source)))), for some
    classes with a LayerNorm after the activation.

    Attributes:
        source: "pooled", the pooler's vector; "first", the first token's hidden state; "tokens", all hidden states.
        dense: Their name of a dense layer H -> H before the last one, if any.
        activation: The activation after it, a name for `ops.activation`.
        norm: Their name of a LayerNorm after it, if any.
        drops_source: Whether dropout also applies before the dense layer.
        output: Their name of the last layer.
        constants: Entries of config.json that must have this value if there is such a head.
        architecture: The class; set by `tables.task_heads`.
    """

    source: Literal["pooled", "first", "tokens"]
    dense: str | None = None
    activation: str = "tanh"
    norm: str | None = None
    drops_source: bool = False
    output: str
    dropout: DropoutEntry | None
    constants: Mapping[str, Any] = field(default_factory=dict)
    architecture: str = ""

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Pair the weights, ours without "heads.KIND."."""
        layers = (("dense", self.dense), ("norm", self.norm), ("output", self.output))
        return tuple(
            (f"{ours}.{part}", f"{theirs}.{part}") for ours, theirs in layers if theirs for part in ("weight", "bias")
        )

    def shapes(self, hidden_size: int, num_outputs: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each weight, by our names."""
        dense = {"dense.weight": (hidden_size, hidden_size), "dense.bias": (hidden_size,)} if self.dense else {}
        norm = {"norm.weight": (hidden_size,), "norm.bias": (hidden_size,)} if self.norm else {}
        return {**dense, **norm, "output.weight": (num_outputs, hidden_size), "output.bias": (num_outputs,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family of Hugging Face classes.

    Attributes:
        name: Hugging Face's `model_type`.
        prefix: Prefix of the body's names in classes with heads; bare models have none.
        body: Pairs of the encoder, without "encoder." and the prefix.
        projection: Pairs of the dense layer E -> H after the embeddings; empty if the classes have none.
        always_projects: Whether the classes have that layer even if E equals H.
        pooler: Pairs of the pooler; empty if the classes have none.
        heads: Pairs of each head, without "heads.KIND.". Of heads with the same names a folder has one: the one that
            config.json names, or the first. The classes ignore names that they do not have.
        tasks: The heads for labeled examples. A folder has at most one, identified by its class, since several have the
            same names.
        tied: (second, first) names of one weight; the output matrix first.
        architectures: (heads, class): the first whose heads are all present is the model's class.
        config: The table of config.json.
        fused: (theirs, parts): endings of modules whose weights are several of ours, one below the other. In `body` a
            part is named "theirs.part".
    """

    name: FamilyName
    prefix: str
    body: tuple[Pair, ...]
    projection: tuple[Pair, ...] = ()
    always_projects: bool = False
    pooler: tuple[Pair, ...]
    heads: dict[str, tuple[Pair, ...]]
    tasks: Mapping[HeadKind, TaskHead]
    tied: tuple[Pair, ...]
    architectures: tuple[tuple[frozenset[str], str], ...]
    config: ConfigTable
    fused: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def pairs(self, config: EncoderConfig, heads: frozenset[str], prefix: str) -> tuple[Pair, ...]:
        """List (ours, theirs) for every weight of a model that this family names; `prefix` is "" for a bare model.

        Blocks that layers share are listed once per layer, or once per group if groups express the sharing.
        """
        layer_names = tuple(str(layer) for layer in range(config.num_layers))
        if self.config.grouped:
            groups = config.layer_plan("attention") if groups_of(config) else range(config.num_layers)
            layer_names = tuple(f"{group}.albert_layers.0" for group in groups)
        pairs = []
        for ours, theirs in self.body:
            if "{n}" not in ours:
                pairs.append((ours, theirs))
                continue
            plan = config.layer_plan("attention" if ours.startswith("attention_blocks") else "ffn")
            pairs += [
                (ours.format(n=block), theirs.format(n=name)) for block, name in zip(plan, layer_names, strict=True)
            ]
        if config.projects_embeddings:
            pairs += self.projection
        if config.pooler:
            pairs += self.pooler
        full = [(f"encoder.{ours}", prefix + theirs) for ours, theirs in pairs]
        of_heads = self.heads | {kind: task.pairs for kind, task in self.tasks.items()}
        for head in sorted(heads):  # A head that the family has no names for is left out.
            full += [(f"heads.{head}.{ours}", theirs) for ours, theirs in of_heads.get(head, ())]
        return tuple(pair for pair in dict.fromkeys(full) if _exists(config, pair[0]))

    def task_among(self, names: frozenset[str], architectures: Sequence[str]) -> HeadKind | None:
        """Return the head for labeled examples in a folder with these weights and classes, or None."""
        for kind, task in self.tasks.items():
            if task.architecture in architectures and _saved_names(task.pairs) & names:
                return kind
        return None

    def architecture(self, heads: frozenset[str]) -> str:
        """Return Hugging Face's class for a model with these heads."""
        for kind, task in self.tasks.items():
            if kind in heads:
                return task.architecture
        return next(name for needed, name in self.architectures if needed <= heads)

    def same_names(self, kind: str) -> tuple[str, ...]:
        """List the heads with the same names as this one, itself included."""
        return tuple(
            other for other, pairs in self.heads.items() if _saved_names(pairs) & _saved_names(self.heads[kind])
        )

    def heads_among(self, names: frozenset[str], stated: str | None) -> frozenset[str]:
        """Return the heads in a folder with these weights; of heads with the same names, `stated` or the first.

        Names that heads for labeled examples have too (ModernBERT's "head.dense") show nothing.
        """
        unclaimed = names - frozenset().union(*(_saved_names(task.pairs) for task in self.tasks.values()))
        present = {kind for kind, pairs in self.heads.items() if _saved_names(pairs) & unclaimed}
        twins = {kind: self.same_names(kind) for kind in present}
        return frozenset(kind for kind in present if kind == (stated if stated in twins[kind] else twins[kind][0]))


def _exists(config: EncoderConfig, name: str) -> bool:
    """Return whether an encoder of this shape has a weight of the table, or its masked-token or task heads have it."""
    module, _, kind = name.rpartition(".")
    if name.startswith(tuple(f"heads.{head}." for head in _FOLLOWING)):
        module = "." + module.rpartition(".")[2]
    if module == "encoder.position_embeddings":
        return config.positions == "absolute"
    if module == "encoder.segment_embeddings":
        return config.type_vocab_size > 0
    if module == "encoder.final_norm" and config.norm_placement == "post":
        return False
    if module == "encoder.attention_blocks.0.norm" and not config.first_attention_norm:
        return False
    if kind == "bias" and module.endswith("norm") and module.startswith(("encoder.", ".")):
        return config.norm_bias
    if kind == "bias" and module.startswith(("encoder.attention_blocks.", "encoder.ffn_blocks.", ".dense")):
        return config.dense_bias
    return True


_FOLLOWING = ("mlm", *get_args(HeadKind))
"""Heads whose dense layer and LayerNorm have biases if the encoder's have."""


def _saved_names(pairs: Sequence[Pair]) -> frozenset[str]:
    return frozenset(saved_name for _, saved_name in pairs)
