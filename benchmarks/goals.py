"""The names of the sides, and what the project wants to reach: how many times as fast as a peer, by row and model."""

from collections.abc import Mapping

HF, FLAG, GROUPED, TRAINER = "transformers", "transformers + oneDNN", "transformers, grouped", "Trainer"
FLAG_GROUPED = "transformers + oneDNN, grouped"
TRAINER_GROUPED, TRAINER_FLAG_GROUPED = "Trainer, grouped", "Trainer + oneDNN, grouped"
BF16, TUNED = "transformers, bf16 autocast", "transformers, tuned"
OWN, OWN_BF16, OWN_LOOP = "maskwright", "maskwright, bf16", "maskwright, whole loop"
OWN_PLAIN = "maskwright, bf16, not compiled"

GOALS: Mapping[tuple[str, str], Mapping[str, float]] = {
    # (row, set against what): by model or case
    ("natural", HF): {"tiny": 6, "small": 5.8, "base": 5, "albert": 4.3},
    ("natural", FLAG): {"tiny": 4, "small": 4, "base": 3, "albert": 2.6},
    ("dropout", HF): {"tiny": 5.7, "small": 5.5, "base": 4.8},
    ("blocks", HF): {"tiny": 2.9, "small": 2.8, "base": 2.5},
    ("blocks", FLAG): {"tiny": 1.7, "small": 1.6, "base": 1.3},
    ("bf16", BF16): {"tiny": 4.5, "small": 4.5, "base": 3.2, "albert": 3},
    ("gpu", TUNED): {"128": 2, "512": 2},
    ("gpu", "peak"): {"128": 0.45, "512": 0.45},
    ("electra", HF): {"small": 5},
    ("utilisation", "peak"): {"small": 0.68, "base": 0.72, "albert": 0.75},
    ("masks", "a second"): {"tokens": 50e6},
    ("masks", "a step"): {"waited": 0.01},
    ("corpus", "tokenizers"): {"wordpiece": 0.6, "byte_bpe": 0.6, "unigram": 0.6},
    ("inference, fp32", HF): {"1 x 16": 3.5, "1 x 128": 3, "32 natural": 4},
    ("inference, best", HF): {"1 x 16": 9, "1 x 128": 7, "32 natural": 8},
    ("int8", "BERT"): {"16": 1.6},
    ("finetuning", TRAINER): {
        "SST-2, training": 2.5,
        "SST-2, scoring": 2.5,
        "SQuAD, training": 2.5,
        "SQuAD, scoring": 2.5,
    },
    ("memory", HF): {"peak": 0.6},
    ("trajectory", "fp32"): {"bf16": 0.001},
}


def goal(row: str, case: str, peer: str) -> str:
    """Write a goal for a table's cell, "" where there is none."""
    found = GOALS.get((row, peer), {}).get(case)
    return "" if found is None else f"{found:g}"
