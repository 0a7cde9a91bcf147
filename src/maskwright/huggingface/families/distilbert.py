"""DistilBERT (Sanh et al. 2019): no segments, no pooler, and names of its own in config.json too."""

from maskwright.huggingface.families.base import ConfigTable, DropoutEntry, Family, TaskHead
from maskwright.huggingface.families.parts import (
    EMBEDDING_NORM,
    SBO_HEAD,
    WORDS_AND_POSITIONS,
    both,
    mlm_head,
    task_heads,
)

_LAYERS = tuple(
    pair
    for ours, theirs in (
        ("attention_blocks.{n}.query", "attention.q_lin"),
        ("attention_blocks.{n}.key", "attention.k_lin"),
        ("attention_blocks.{n}.value", "attention.v_lin"),
        ("attention_blocks.{n}.output", "attention.out_lin"),
        ("attention_blocks.{n}.norm", "sa_layer_norm"),
        ("ffn_blocks.{n}.dense_in", "ffn.lin1"),
        ("ffn_blocks.{n}.dense_out", "ffn.lin2"),
        ("ffn_blocks.{n}.norm", "output_layer_norm"),
    )
    for pair in both(ours, "transformer.layer.{n}." + theirs)
)


def _over_sequences(architecture: str) -> TaskHead:
    return TaskHead(
        architecture=architecture,
        source="first",
        dense="pre_classifier",
        activation="relu",
        output="classifier",
        dropout=DropoutEntry("seq_classif_dropout", assumed=0.2),
    )


DISTILBERT = Family(
    name="distilbert",
    prefix="distilbert.",
    body=(*WORDS_AND_POSITIONS, *EMBEDDING_NORM, *_LAYERS),
    pooler=(),
    heads={"mlm": mlm_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"), "sbo": SBO_HEAD},
    tasks=task_heads(
        "DistilBert",
        sequence=_over_sequences("DistilBertForSequenceClassification"),
        choice=_over_sequences("DistilBertForMultipleChoice"),
        token_dropout=DropoutEntry(None),
        span_dropout=DropoutEntry("qa_dropout", assumed=0.1),
    ),
    tied=(("vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"),),
    architectures=((frozenset({"mlm"}), "DistilBertForMaskedLM"), (frozenset(), "DistilBertModel")),
    config=ConfigTable(
        fields=(
            ("hidden_size", "dim", 768),
            ("num_layers", "n_layers", 6),
            ("num_heads", "n_heads", 12),
            ("intermediate_size", "hidden_dim", 3072),
            ("hidden_dropout", "dropout", 0.1),
            ("attention_dropout", "attention_dropout", 0.1),
            ("initializer_range", "initializer_range", 0.02),
        ),
        activation=("activation", "gelu"),
        fixed={"type_vocab_size": 0, "layer_norm_eps": 1e-12},
        vocab_size=30522,
        initializer="normal",
    ),
)
