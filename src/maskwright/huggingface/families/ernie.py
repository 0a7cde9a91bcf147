"""ERNIE 1.0 (Sun et al. 2019): BERT's names under another prefix."""

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

ERNIE = Family(
    name="ernie",
    prefix="ernie.",
    body=BERT_BODY,
    pooler=BERT_POOLER,
    heads={"mlm": BERT_MLM, **BERT_PAIR_HEADS, "sbo": SBO_HEAD},
    tasks=pooled_task_heads("Ernie", "classifier_dropout"),
    tied=bert_tied("ernie."),
    architectures=bert_architectures("Ernie"),
    config=ConfigTable(
        fields=bert_fields(),
        activation=("hidden_act", "gelu"),
        # ERNIE 2.0 and 3.0 add an embedding of the task to every token.
        constants={"use_task_id": False},
        vocab_size=30522,
    ),
)
