"""What a family of Hugging Face classes calls each weight and each field: the type of the tables beside this file.

A weight table lists pairs (ours, theirs). "{n}" stands, on their side, for the place of a layer ("3", or a group and a
place in it); on ours for the number of the distinct block that the layer uses, so that families whose layers share
weights need no table of their own. What families have in common is written once, in `parts`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from maskwright.core.types import FamilyName, HeadKind
from maskwright.huggingface.groups import places
from maskwright.model.config import EncoderConfig

Pair = tuple[str, str]
Field = tuple[str, str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigTable:
    """How a family's config.json says the encoder's shape.

    Attributes:
        fields: (ours, theirs, what Hugging Face's class assumes where the file does not say).
        activation: (theirs, what is assumed) for `hidden_activation`.
        fixed: Our fields that the file does not have, and the one value that the classes compute with.
        constants: Entries of theirs that must have this value, and are written so.
        vocab_size: What Hugging Face's class assumes.
        pad_token_id: Likewise.
        positions_after_pad: Whether positions are counted from the padding id + 1 (RoBERTa).
        names_ends: Whether the file names the ids of a sequence's first and last token.
        initializer: Not in the file: what the original used.
        head_activation: The one activation that the classes' masked-token head has, whatever the file says; None where
            the head follows the file.
        grouped: Whether layers lie in groups that share their weights (ALBERT).
    """

    fields: tuple[Field, ...]
    activation: tuple[str, str]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    vocab_size: int
    pad_token_id: int = 0
    positions_after_pad: bool = False
    names_ends: bool = False
    initializer: Literal["truncated_normal", "normal"] = "truncated_normal"
    head_activation: str | None = None
    grouped: bool = False


@dataclass(frozen=True, slots=True)
class DropoutEntry:
    """Where config.json says how much is dropped before a head's last layer.

    Attributes:
        name: The entry; None where the class takes the rate of the encoder's hidden states.
        assumed: What the class assumes where the file does not say; None: the rate of the hidden states.
    """

    name: str | None
    assumed: float | None = None

    def rate(self, said: float | None, hidden_dropout: float) -> float:
        """Return the rate that the class drops with.

        Args:
            said: The entry's value; None where it is missing or null.
            hidden_dropout: The rate of the encoder's hidden states.
        """
        rates = (said if self.name else None, self.assumed, hidden_dropout)
        return next(rate for rate in rates if rate is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHead:
    """A head for labelled examples, as one class of a family computes it.

    Its scores are output(dropout(source)), or with a dense layer output(dropout(activation(dense(source)))).

    Attributes:
        architecture: The class.
        source: What the head reads: "pooled", the pooler's vector; "first", the first token's hidden state; "tokens",
            the hidden states of tokens.
        dense: Their name of a dense layer H -> H before the last one; None where there is none.
        activation: What follows it, a name for `core.tensors.activation`.
        drops_source: Whether what goes into the dense layer is dropped, too.
        output: Their name of the last layer.
        dropout: The rate; None where nothing is dropped.
        constants: Entries of config.json that must have this value where there is such a head.
    """

    architecture: str
    source: Literal["pooled", "first", "tokens"]
    dense: str | None = None
    activation: str = "tanh"
    drops_source: bool = False
    output: str
    dropout: DropoutEntry | None
    constants: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Pair the weights, ours without "heads.KIND."."""
        layers = (("dense", self.dense), ("output", self.output))
        return tuple(
            (f"{ours}.{part}", f"{theirs}.{part}") for ours, theirs in layers if theirs for part in ("weight", "bias")
        )

    def shapes(self, hidden_size: int, num_outputs: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each weight, by our names.

        Args:
            hidden_size: H.
            num_outputs: Width of the last layer.
        """
        dense = {"dense.weight": (hidden_size, hidden_size), "dense.bias": (hidden_size,)} if self.dense else {}
        return {**dense, "output.weight": (num_outputs, hidden_size), "output.bias": (num_outputs,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family of Hugging Face classes.

    Attributes:
        name: Hugging Face's `model_type`.
        prefix: What stands before the body's names in classes with heads; bare models have no prefix.
        body: Pairs of the encoder, without "encoder." and without the prefix, in the order of the forward pass.
        projection: Pairs of the dense layer E -> H after the embeddings; empty where the classes have none.
        always_projects: Whether the classes have that layer also where E is H.
        pooler: Pairs of the pooler, in the same form; empty where a model with one is refused.
        heads: For each head, its pairs, without "heads.KIND.". Of heads with the same names a folder holds one; the
            first is taken where config.json does not say which. Names that no class has are passed over there.
        tasks: For each kind of labelled examples, the head of the class for them. A folder holds one at most, and its
            class says which: several have the same names.
        tied: Second names that files may carry for a weight: (theirs, the name of theirs that it must equal).
        architectures: (heads, class): the first whose heads are all there is the class that suits a model.
        config: The table of config.json.
    """

    name: FamilyName
    prefix: str
    body: tuple[Pair, ...]
    projection: tuple[Pair, ...] = ()
    always_projects: bool = False
    pooler: tuple[Pair, ...]
    heads: Mapping[str, tuple[Pair, ...]]
    tasks: Mapping[HeadKind, TaskHead]
    tied: tuple[Pair, ...]
    architectures: tuple[tuple[frozenset[str], str], ...]
    config: ConfigTable

    def pairs(
        self, config: EncoderConfig, heads: frozenset[str], prefix: str, at: Sequence[str] | None = None
    ) -> tuple[Pair, ...]:
        """List (ours, theirs) for every weight of a model that this family names.

        Blocks that layers share stand once a layer; in a family of groups that can say the sharing, once a group.

        Args:
            config: The shape.
            heads: Which heads there are.
            prefix: `prefix`, or "" for a bare model.
            at: The place of each layer; None for where we write them.
        """
        at = self.places(config) if at is None else at
        pairs = []
        for ours, theirs in self.body:
            if "{n}" not in ours:
                pairs.append((ours, theirs))
                continue
            plan = config.layer_plan("attention" if ours.startswith("attention_blocks") else "ffn")
            pairs += [(ours.format(n=block), theirs.format(n=place)) for block, place in zip(plan, at, strict=True)]
        if config.projects_embeddings:
            pairs += self.projection
        if config.pooler:
            pairs += self.pooler
        full = [(f"encoder.{ours}", prefix + theirs) for ours, theirs in pairs]
        for head in sorted(heads):
            full += [(f"heads.{head}.{ours}", theirs) for ours, theirs in self.head_pairs(head)]
        return tuple(dict.fromkeys(full))

    def head_pairs(self, kind: str) -> tuple[Pair, ...]:
        """List a head's pairs, ours without "heads.KIND."; none where the family has no names for it."""
        task = next((task for other, task in self.tasks.items() if other == kind), None)
        return self.heads.get(kind, ()) if task is None else task.pairs

    def task_among(self, names: frozenset[str], architectures: Sequence[str]) -> HeadKind | None:
        """Find which head for labelled examples a folder holds; None if it holds none.

        Args:
            names: The names of all its weights.
            architectures: The classes that config.json names.
        """
        for kind, task in self.tasks.items():
            if task.architecture in architectures and _theirs(task.pairs) & names:
                return kind
        return None

    def places(self, config: EncoderConfig) -> tuple[str, ...]:
        """Say where each layer stands in the folders that we write."""
        return places(config) if self.config.grouped else tuple(str(layer) for layer in range(config.num_layers))

    def layer_starts(self, prefix: str) -> tuple[str, ...]:
        """List what the names of all layers' weights begin with, up to the layer's place."""
        return tuple({prefix + theirs.partition("{n}")[0] for _, theirs in self.body if "{n}" in theirs})

    def architecture(self, heads: frozenset[str]) -> str:
        """Return Hugging Face's class for a model with these heads."""
        for kind, task in self.tasks.items():
            if kind in heads:
                return task.architecture
        return next(name for needed, name in self.architectures if needed <= heads)

    @property
    def own_heads(self) -> frozenset[str]:
        """The heads that this family's classes have."""
        return frozenset().union(*(needed for needed, _ in self.architectures))

    def same_names(self, kind: str) -> tuple[str, ...]:
        """List the heads that have the same names as this one, itself included, the first one first."""
        return tuple(other for other, pairs in self.heads.items() if _theirs(pairs) & _theirs(self.heads[kind]))

    def lacking(self, heads: frozenset[str]) -> frozenset[str]:
        """Say which heads this family's classes have and a model with these heads has not."""
        return frozenset(
            kind
            for kind in self.own_heads
            if kind == self.same_names(kind)[0] and not heads.intersection(self.same_names(kind))
        )

    def heads_among(self, names: frozenset[str], said: str | None) -> frozenset[str]:
        """Find the heads that a folder holds.

        Args:
            names: The names of all its weights.
            said: The head that the folder says it holds where several have the same names; None for the first.
        """
        found = {kind for kind, pairs in self.heads.items() if _theirs(pairs) & names}
        twins = {kind: self.same_names(kind) for kind in found}
        return frozenset(kind for kind in found if kind == (said if said in twins[kind] else twins[kind][0]))


def _theirs(pairs: Sequence[Pair]) -> frozenset[str]:
    return frozenset(theirs for _, theirs in pairs)
