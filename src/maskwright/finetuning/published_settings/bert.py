"""BERT: Devlin et al. 2019, with google-research/bert where the paper is silent."""

from maskwright.finetuning.published_settings.row import Published

_BERT_PAPER = "Devlin et al. 2019"
ROWS = (
    Published(
        system="bert",
        # The paper takes the best of {5, 4, 3, 2}e-5 on the development set; this is the middle of its grid.
        settings={"epochs": 3.0, "batch_size": 32, "learning_rate": 3e-5, "max_length": 128, "warmup_share": 0.1},
        source=f"{_BERT_PAPER}, 4.1 and A.3; google-research/bert run_classifier.py",
    ),
    Published(
        system="bert",
        heads=("span",),
        # Length: run_squad.py. The paper does not say one.
        settings={"epochs": 3.0, "batch_size": 32, "learning_rate": 5e-5, "max_length": 384},
        source=f"{_BERT_PAPER}, 4.2; google-research/bert run_squad.py",
    ),
    Published(
        system="bert",
        heads=("choice",),
        settings={"epochs": 3.0, "batch_size": 16, "learning_rate": 2e-5},
        source=f"{_BERT_PAPER}, 4.4 (SWAG)",
    ),
)
