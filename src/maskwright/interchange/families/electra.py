"""ELECTRA (Clark et al. 2020): discriminator and generator are a folder each, of one family."""

from maskwright.interchange.families.base import ConfigTable, Family
from maskwright.interchange.families.parts import (
    BERT_BODY,
    BERT_PAIR_HEADS,
    BERT_POOLER,
    RTD_HEAD,
    SBO_HEAD,
    bert_fields,
    both,
    mlm_head,
)

ELECTRA = Family(
    name="electra",
    prefix="electra.",
    body=BERT_BODY,
    projection=both("embedding_projection", "embeddings_project"),
    # No class of ELECTRA has a pooler or a pair head: the names are BERT's, and ELECTRA's classes pass over them.
    pooler=BERT_POOLER,
    heads={
        "rtd": RTD_HEAD,
        "mlm": mlm_head("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"),
        **BERT_PAIR_HEADS,
        "sbo": SBO_HEAD,
    },
    tied=(("generator_lm_head.weight", "electra.embeddings.word_embeddings.weight"),),
    architectures=(
        (frozenset({"rtd"}), "ElectraForPreTraining"),
        (frozenset({"mlm"}), "ElectraForMaskedLM"),
        (frozenset(), "ElectraModel"),
    ),
    config=ConfigTable(
        fields=bert_fields(256, 12, 4, 1024, embedding_size=128),
        activation=("hidden_act", "gelu"),
        vocab_size=30522,
        head_activation="gelu",
    ),
)
