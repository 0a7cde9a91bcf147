"""BERT (Devlin et al. 2019); also whole-word masking's, MacBERT's and SpanBERT's classes."""

from maskwright.huggingface.families.base import ConfigTable, Family
from maskwright.huggingface.families.parts import (
    BERT_BODY,
    BERT_MLM,
    BERT_PAIR_HEADS,
    BERT_POOLER,
    SBO_HEAD,
    bert_architectures,
    bert_fields,
    bert_tied,
    pooled_task_heads,
)

BERT = Family(
    name="bert",
    prefix="bert.",
    body=BERT_BODY,
    pooler=BERT_POOLER,
    heads={"mlm": BERT_MLM, **BERT_PAIR_HEADS, "sbo": SBO_HEAD},
    tasks=pooled_task_heads("Bert", "classifier_dropout"),
    tied=bert_tied("bert."),
    architectures=bert_architectures("Bert"),
    config=ConfigTable(fields=bert_fields(), activation=("hidden_act", "gelu"), vocab_size=30522),
)
