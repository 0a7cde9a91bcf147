"""DistilBERT: what its published config.json has."""

from maskwright.finetuning.published_settings.row import Published

ROWS = (
    # The values of its published config.json; no other settings of its fine-tuning are published.
    Published(
        system="distilbert",
        heads=("sequence", "choice"),
        settings={"head_dropout": 0.2},
        source="huggingface/transformers-research-projects distillation (seq_classif_dropout)",
    ),
    Published(
        system="distilbert",
        heads=("span",),
        settings={"head_dropout": 0.1},
        source="huggingface/transformers-research-projects distillation (qa_dropout)",
    ),
)
