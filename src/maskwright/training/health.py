"""Rules for the health of training.

| finding | rule | what happens |
|---|---|---|
| no target, or a loss or gradient that is not finite | `step.py` | the run stops before the update, naming the batch |
| spike | loss or gradient norm 7 deviations above the mean of the last 1,000 steps | a warning names the batch |
| divergence | held-out loss above both twice its first value and the unigram baseline, or not finite | the run stops |

Weights that are not finite are divergence too. It is looked for at every evaluation and before every checkpoint.
Spikes are those that the spike score of OLMo 2 counts (Team OLMo 2025, arXiv:2501.00656). The limit follows Wortsman
et al. (2023, arXiv:2309.14322), whose LR sensitivity caps losses at that of the initialization. Here it is twice the
held-out loss before the first step, and at least the unigram baseline, because the loss of a continued model rises
while its learning rate warms up.
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


def divergence(loss: float, first_loss: float, baseline: float, weights: Iterable[Tensor]) -> str:
    """Say why a run has diverged; "" if it has not.

    Args:
        loss: On held-out text; 0 without any.
        first_loss: On held-out text before the first step; infinite if unknown.
        baseline: Loss of the unigram baseline; 0 without one.
    """
    if not math.isfinite(loss) or loss > max(_DIVERGED * first_loss, baseline):
        return f"the held-out loss is {loss:.4g}, before the first step it was {first_loss:.4g}"
    return "" if total_norm(list(weights)).isfinite() else "weights are not finite"
