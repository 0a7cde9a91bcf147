"""ALBERT (Lan et al. 2020): groups of layers that share weights, and always a dense layer after the embeddings."""

from maskwright.huggingface.families.base import ConfigTable, Family
from maskwright.huggingface.families.parts import (
    EMBEDDINGS,
    RTD_HEAD,
    SBO_HEAD,
    bert_fields,
    both,
    mlm_head,
    pooled_task_heads,
)

_LAYERS = tuple(
    pair
    for ours, theirs in (
        ("attention_blocks.{n}.query", "attention.query"),
        ("attention_blocks.{n}.key", "attention.key"),
        ("attention_blocks.{n}.value", "attention.value"),
        ("attention_blocks.{n}.output", "attention.dense"),
        ("attention_blocks.{n}.norm", "attention.LayerNorm"),
        ("ffn_blocks.{n}.dense_in", "ffn"),
        ("ffn_blocks.{n}.dense_out", "ffn_output"),
        ("ffn_blocks.{n}.norm", "full_layer_layer_norm"),
    )
    for pair in both(ours, "encoder.albert_layer_groups.{n}." + theirs)
)
_PAIR_HEAD = both("classifier", "sop_classifier.classifier")

ALBERT = Family(
    name="albert",
    prefix="albert.",
    body=(*EMBEDDINGS, *_LAYERS),
    projection=both("embedding_projection", "encoder.embedding_hidden_mapping_in"),
    always_projects=True,
    pooler=both("pooler", "pooler"),
    heads={
        "mlm": mlm_head("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
        "sop": _PAIR_HEAD,
        # The paper's comparison of the two (section 4.6).
        "nsp": _PAIR_HEAD,
        # No class of ALBERT has this head: the name is ELECTRA's, and ALBERT's classes pass over it.
        "rtd": RTD_HEAD,
        "sbo": SBO_HEAD,
    },
    tasks=pooled_task_heads("Albert", "classifier_dropout_prob", assumed=0.1),
    tied=(
        ("predictions.decoder.weight", "albert.embeddings.word_embeddings.weight"),
        ("predictions.decoder.bias", "predictions.bias"),
    ),
    architectures=(
        (frozenset({"mlm", "sop"}), "AlbertForPreTraining"),
        (frozenset({"mlm", "nsp"}), "AlbertForPreTraining"),
        (frozenset({"mlm"}), "AlbertForMaskedLM"),
        (frozenset(), "AlbertModel"),
    ),
    config=ConfigTable(
        fields=bert_fields(4096, 12, 64, 16384, dropout=0, embedding_size=128),
        activation=("hidden_act", "gelu_new"),
        vocab_size=30000,
        names_ends=True,
        grouped=True,
    ),
)
