"""Rules for the health of training.

| finding | rule | what happens |
|---|---|---|
| no target, or a loss or gradient that is not finite | `step.py` | the run stops before the update, naming the batch |
| spike | loss or gradient norm 7 deviations above the mean of the last 1,000 steps | a warning names the batch |
| divergence | held-out loss above twice the loss of the first step, or weights that are not finite | the run stops |

Divergence is looked for at every evaluation and before every checkpoint, so the last checkpoint is always sound. Spikes
are those that the spike score of OLMo 2 counts (Team OLMo 2025, arXiv:2501.00656). The limit of divergence follows
Wortsman et al. (2023, arXiv:2309.14322), whose LR sensitivity caps losses at that of the initialization; here it is
twice the loss of the first step, because that of a continued model rises while its learning rate warms up.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np
from torch import Tensor

from maskwright.training.optimizer import total_norm

_DEVIATIONS, _WINDOW, _FEWEST = 7.0, 1000, 100
_DIVERGED = 2.0


class Spikes:
    """Finds spikes in series of numbers, such as the loss of each step."""

    def __init__(self) -> None:
        self._last: dict[str, deque[float]] = {}

    def find(self, numbers: Mapping[str, float]) -> list[str]:
        """Add a step's numbers, by name; describe those that are spikes."""
        found = []
        for name, number in numbers.items():
            last = self._last.setdefault(name, deque(maxlen=_WINDOW))
            if len(last) >= _FEWEST:
                mean, deviation = float(np.mean(last)), float(np.std(last))
                if number > mean + _DEVIATIONS * deviation:
                    found.append(f"{name} {number:.4g} (mean of the last {len(last):,} steps: {mean:.4g})")
            last.append(number)
        return found


def divergence(loss: float, first_loss: float, weights: Iterable[Tensor]) -> str:
    """Say why a run has diverged; "" if it has not.

    Args:
        loss: On held-out text; 0 without any.
        first_loss: Of the first step; infinite if unknown.
    """
    if not math.isfinite(loss) or loss > _DIVERGED * first_loss:
        return f"the held-out loss is {loss:.4g}, that of the first step was {first_loss:.4g}"
    return "" if total_norm(list(weights)).isfinite() else "weights are not finite"
