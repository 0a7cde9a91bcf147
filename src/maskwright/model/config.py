"""The encoder's shape, dropout and initial weights as one frozen value.

Most names are those of Hugging Face's config.json; `checkpoints/families` has a table of those that differ.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from maskwright.core.spec import Condition, Conditions, Spec
from maskwright.core.types import HeadShape

Rate = Annotated[float, Field(ge=0, lt=1)]
Size = Annotated[int, Field(ge=1, le=1 << 20)]
MAX_LAYERS = 1000
Layers = Annotated[int, Field(ge=1, le=MAX_LAYERS)]
Theta = Annotated[float, Field(gt=1)]

_IF_ROTARY: Condition = ("positions", lambda positions: positions == "rotary")
_IF_WINDOWS: Condition = ("attention_window", lambda size: size is not None)
_IF_SHARED: Condition = ("sharing", lambda sharing: sharing != "none")


class EncoderConfig(Spec):
    """A Transformer encoder of the BERT family (Devlin et al. 2019, section 3; Warner et al. 2024, ModernBERT).

    Attributes:
        hidden_size: H, width of the hidden states.
        num_layers: L, layers applied (not distinct ones: see `sharing`).
        num_heads: N, attention heads; must divide `hidden_size`.
        intermediate_size: F, width inside the feed-forward sublayer; 4 H in all published models.
        embedding_size: E, width of the embeddings; None means H.
        embedding_projection: Whether a dense E -> H follows the embeddings: "if_needed", where E differs from H, or
            "always" (Hugging Face's ALBERT).
        max_positions: Length of the longest sequence; `position_offset` adds rows to the table.
        position_offset: Rows skipped at the front of the position table: 0, or 2 for RoBERTa.
        type_vocab_size: Rows of the segment table: 2, 1 (RoBERTa: added to every token) or 0 (DistilBERT: no table).
        positions: "absolute", a table of embeddings, or "rotary": queries and keys rotate with the position, so that
            scores depend on distances only (Su et al. 2021); the encoder then has no position table.
        rope_theta: Base of the rotary wavelengths, in layers that attend to everything.
        local_rope_theta: The same in layers with a window.
        attention_window: Tokens to either side that a token attends to, itself not counted; None for all. Layer i has
            no window if i is a multiple of `global_attention_every`.
        norm_placement: "post", LayerNorm after each residual sum, or "pre": before each sublayer, and after the last.
        first_attention_norm: Whether the first layer's attention has a norm before it; it follows that of the
            embeddings. False in ModernBERT; only with pre-norm.
        norm_bias: Whether LayerNorms have a bias.
        dense_bias: Whether the dense layers of attention, feed-forward and masked-token head have biases; the output
            bias over the vocabulary, projection and pooler always exist.
        feed_forward: "dense", W2 act(W1 x), or "gated": W2 (act(a) * b) with a, b = W1 x, so that W1 has 2 F rows
            (Shazeer 2020, "GLU Variants Improve Transformer").
        hidden_activation: "gelu" (erf), "gelu_tanh" (Google's BERT and ALBERT) or "relu" (ERNIE).
        layer_norm_eps: 1e-12 (BERT) or 1e-5 (RoBERTa, ERNIE).
        hidden_dropout: Share of hidden values dropped after embeddings, attention and feed-forward.
        attention_dropout: Share of attention probabilities dropped.
        sharing: Which sublayers all layers share: "none", "attention", "ffn" or "all" (Lan et al. 2019, section 3.1).
        num_groups: Groups of consecutive layers, as equal as can be; only layers of one group share (Hugging Face:
            num_hidden_groups).
        blocks_per_group: Distinct blocks of a group, used in turn (Hugging Face: inner_group_num, where one "layer"
            applies all of them: `num_layers` is that number of layers times this).
        pooler: Whether a dense + tanh over the first token is part of the encoder.
        initializer: "truncated_normal" (cut at two standard deviations: Google), "normal" (fairseq) or "megatron": the
            former, with the output layers of attention and feed-forward divided by sqrt(2 L) (Shoeybi et al. 2019).
        initializer_range: Standard deviation of the initial weights.
        initial_attention: "random", as published, or "neighbors": each head of the first layer starts attending to one
            neighboring token (`neighbor_attention`), for short runs.
        initial_embeddings: "random", as published, or "cooccurrence": word embeddings start as token vectors, near each
            other for tokens with the same neighbors in the corpus (`start_from_vectors`), for short runs.
    """

    used_with: ClassVar[Conditions] = {
        "position_offset": (("positions", lambda positions: positions == "absolute"),),
        "rope_theta": (_IF_ROTARY,),
        "local_rope_theta": (_IF_ROTARY, _IF_WINDOWS),
        "global_attention_every": (_IF_WINDOWS,),
        "first_attention_norm": (("norm_placement", lambda placement: placement == "pre"),),
        "num_groups": (_IF_SHARED,),
        "blocks_per_group": (_IF_SHARED,),
    }

    hidden_size: Size = 768
    num_layers: Layers = 12
    num_heads: Size = 12
    intermediate_size: Size = 3072
    embedding_size: Size | None = None
    embedding_projection: Literal["if_needed", "always"] = "if_needed"
    max_positions: Size = 512
    position_offset: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    type_vocab_size: Annotated[int, Field(ge=0, le=1 << 20)] = 2
    positions: Literal["absolute", "rotary"] = "absolute"
    rope_theta: Theta = 10_000.0
    local_rope_theta: Theta = 10_000.0
    attention_window: Size | None = None
    global_attention_every: Annotated[int, Field(ge=2, le=MAX_LAYERS)] = 3
    norm_placement: Literal["post", "pre"] = "post"
    first_attention_norm: bool = True
    norm_bias: bool = True
    dense_bias: bool = True
    feed_forward: Literal["dense", "gated"] = "dense"
    hidden_activation: Literal["gelu", "gelu_tanh", "relu"] = "gelu_tanh"
    layer_norm_eps: Annotated[float, Field(gt=0)] = 1e-12
    hidden_dropout: Rate = 0.1
    attention_dropout: Rate = 0.1
    sharing: Literal["none", "attention", "ffn", "all"] = "none"
    num_groups: Layers = 1
    blocks_per_group: Layers = 1
    pooler: bool = True
    initializer: Literal["truncated_normal", "normal", "megatron"] = "truncated_normal"
    initializer_range: Annotated[float, Field(gt=0)] = 0.02
    initial_attention: Literal["random", "neighbors"] = "random"
    initial_embeddings: Literal["random", "cooccurrence"] = "random"

    @model_validator(mode="after")
    def _fits(self) -> "EncoderConfig":
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"num_heads {self.num_heads} does not divide hidden_size {self.hidden_size}; "
                "choose a divisor, usually hidden_size / 64"
            )
        if self.num_layers % self.blocks_per_group or self.num_layers // self.blocks_per_group < self.num_groups:
            raise ValueError(
                f"num_layers {self.num_layers} cannot be {self.num_groups} groups of {self.blocks_per_group} blocks "
                "each; it must be a multiple of blocks_per_group, and at least num_groups times that"
            )
        if self.positions == "rotary" and self.head_size % 2:
            raise ValueError(
                f"rotary positions rotate pairs of values, but heads have {self.head_size}, an odd number; choose an "
                "even hidden_size / num_heads"
            )
        if not self.first_attention_norm and self.sharing in ("all", "attention"):
            raise ValueError(
                f"the first attention cannot lack a norm with sharing {self.sharing!r}, where all layers have the same "
                "sublayers: set first_attention_norm=true or sharing=none"
            )
        return self

    def window(self, layer: int) -> int | None:
        """Return the window of a layer's attention, in tokens to either side; None for all."""
        return self.attention_window if layer % self.global_attention_every else None

    def theta(self, layer: int) -> float:
        """Return the base of a layer's rotary wavelengths."""
        return self.rope_theta if self.window(layer) is None else self.local_rope_theta

    @property
    def embedding_width(self) -> int:
        """E, with None resolved to H."""
        return self.embedding_size or self.hidden_size

    @property
    def projects_embeddings(self) -> bool:
        """Whether a dense E -> H follows the embeddings."""
        return self.embedding_projection == "always" or self.embedding_width != self.hidden_size

    def head_shape(self, vocab_size: int) -> HeadShape:
        """Return the dimensions that heads depend on; `vocab_size` is the number of word embeddings."""
        return HeadShape(
            hidden_size=self.hidden_size,
            embedding_size=self.embedding_width,
            vocab_size=vocab_size,
            hidden_activation=self.hidden_activation,
            layer_norm_eps=self.layer_norm_eps,
            norm_bias=self.norm_bias,
            dense_bias=self.dense_bias,
        )

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_heads

    def layer_plan(self, sublayer: Literal["attention", "ffn"]) -> tuple[int, ...]:
        """Return the number of the sublayer that each layer uses."""
        if self.sharing not in ("all", sublayer):
            return tuple(range(self.num_layers))
        # Each of ALBERT's layers applies all blocks of its group (albert: modeling.py, transformer_model); here these
        # are `blocks` layers. The group is computed in floating point as in Hugging Face's AlbertTransformer, which for
        # a few pairs (the first is 18 layers in 14 groups) puts a boundary layer into the group before.
        blocks = self.blocks_per_group
        albert_layers = self.num_layers // blocks
        groups = [int(layer / (albert_layers / self.num_groups)) for layer in range(albert_layers)]
        return tuple(group * blocks + block for group in groups for block in range(blocks))
