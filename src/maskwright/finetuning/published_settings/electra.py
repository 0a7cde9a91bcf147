"""ELECTRA: configure_finetuning.py of its code, and Clark et al. 2020, appendix B for small models."""

from maskwright.finetuning.published_settings.row import LARGE, SMALL, Published

_GLUE = ("cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "mnli-mm", "qnli", "rte", "wnli")

_ELECTRA_CODE = "google-research/electra configure_finetuning.py"
ROWS = (
    Published(
        system="electra",
        settings={"learning_rate": 1e-4, "layer_decay": 0.8, "schedule": "linear_product"},
        source=f"{_ELECTRA_CODE}:41-162",
    ),
    # Its code knows GLUE, chunking and SQuAD; the passes, batch and length of another task are that task's own.
    Published(
        system="electra",
        benchmarks=_GLUE,
        settings={"epochs": 3.0, "batch_size": 32, "max_length": 128},
        source=f"{_ELECTRA_CODE}:41-162",
    ),
    Published(
        system="electra",
        widths=SMALL,
        settings={"learning_rate": 3e-4, "weight_decay": 0.0},
        source="Clark et al. 2020, appendix B",
    ),
    Published(
        system="electra",
        widths=LARGE,
        settings={"learning_rate": 5e-5, "layer_decay": 0.9},
        source=_ELECTRA_CODE,
    ),
    Published(
        system="electra", benchmarks=("rte", "sts-b"), settings={"epochs": 10.0}, source=f"{_ELECTRA_CODE}:41-162"
    ),
    # Targets of 0 to 5 are learnt as 0 to 1.
    Published(system="electra", benchmarks=("sts-b",), task_fields={"scale": 5.0}, source=f"{_ELECTRA_CODE}: STS-B"),
    Published(
        system="electra",
        benchmarks=("mrpc", "sts-b"),
        settings={"double_unordered": True},
        source=f"{_ELECTRA_CODE}: double_unordered",
    ),
    Published(
        system="electra",
        heads=("span",),
        settings={"epochs": 2.0, "batch_size": 32, "max_length": 512},
        source=f"{_ELECTRA_CODE}:41-162",
    ),
    Published(system="electra", heads=("token",), settings={"max_length": 256}, source=f"{_ELECTRA_CODE}:41-162"),
)
