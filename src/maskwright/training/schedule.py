"""The learning rate as a function of progress through the budget, in the shapes of the original codes."""

from typing import Literal

Shape = Literal["linear", "linear_jump", "linear_product"]


def rate_factor(shape: Shape, progress: float, warmup_share: float) -> float:
    """Return the learning rate as a share of its peak.

    Args:
        shape: "linear": rises to the peak at the end of warmup, then falls to 0 (fairseq
            lr_scheduler/polynomial_decay_schedule.py:74-90). "linear_jump": the decay is counted from the start, so
            the rate jumps to 1 - warmup_share when warmup ends (Google's BERT, optimization.py:25-54).
            "linear_product": both factors at once (ELECTRA, model/optimization.py:28-60).
        progress: Share of the budget spent before this step, in [0, 1].
        warmup_share: In [0, 1).

    Example:
        >>> rate_factor("linear_jump", 0.01, 0.01)
        0.99
    """
    rising = progress / warmup_share if warmup_share > 0 else 1.0
    match shape:
        case "linear":
            return rising if rising < 1 else (1 - progress) / (1 - warmup_share)
        case "linear_jump":
            return rising if rising < 1 else 1 - progress
        case "linear_product":
            return min(1.0, rising) * (1 - progress)
