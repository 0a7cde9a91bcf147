"""Statistics of a study: mean, spread and confidence interval per recipe; paired tests against the baseline.

**Interval of a mean**: percentile bootstrap, over seeds or over groups of examples, whichever is wider. Resampling
seeds covers what changes from training to training; resampling examples covers what another test set would change. With
fewer than about five seeds the bootstrap over seeds is too narrow, so no verdict depends on it.

**Test of a difference**: paired t test over the seeds, since runs of one seed share their order of data. With n seeds
an exact sign-flip test has no p value below 2 / 2^n (0.25 for three seeds), so it can show nothing in an affordable
study; the t test can, at the price of assuming that differences between seeds are roughly normal. Where all differences
are equal and not zero, which accuracies over few examples can produce, the t statistic is infinite and the exact test's
2 / 2^n is used instead.

**Several recipes**: p values of one metric are adjusted by Holm's method, so the probability of any false difference in
one metric is at most alpha, however many recipes are compared with the baseline.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

ALPHA = 0.05
"""Probability of a false difference per metric."""
BASELINE, BETTER, WORSE = "baseline", "better", "worse"
NO_DIFFERENCE, NOT_TESTED = "no difference shown", "one seed: not tested"
NOT_COMPARABLE = "on the plateau: not comparable"
_RESAMPLES = 2000

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One metric of one recipe.

    Attributes:
        mean, sd: Over the seeds; the sample standard deviation (n - 1) is None for one seed.
        low, high: Bootstrap interval of the mean at confidence 1 - ALPHA; None if there is nothing to resample.
        over: What was resampled: "seeds", "examples" or "".
    """

    mean: float
    sd: float | None
    low: float | None
    high: float | None
    over: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One metric of one recipe against the baseline, over the seeds that both have.

    Attributes:
        seeds: How many.
        mean: Mean of recipe minus baseline.
        low, high: t interval of that mean at confidence 1 - ALPHA, not adjusted; None for one seed.
        p, p_holm: Two-sided, and adjusted for the number of recipes; None for one seed.
        verdict: One of this module's five strings.
    """

    seeds: int
    mean: float
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None
    verdict: str


def estimate(values: Sequence[float], groups: Sequence[Sequence[float]] | None = None) -> Estimate:
    """Estimate the mean of one value per seed; `groups`: the metric over G groups of examples, shape (seeds, G)."""
    array = np.asarray(values, dtype=np.float64)
    by_example = [] if groups is None else np.asarray(groups, dtype=np.float64).mean(axis=0)
    intervals = {
        over: stats.bootstrap(
            (sample,), np.mean, confidence_level=1 - ALPHA, n_resamples=_RESAMPLES, method="percentile", rng=0
        ).confidence_interval
        for over, sample in (("seeds", array), ("examples", by_example))
        if len(sample) > 1
    }
    over = max(intervals, key=lambda name: intervals[name].high - intervals[name].low, default="")
    # Groups differ a little in size, so their mean is not exactly the metric: take the distances from it.
    center = float(np.mean(by_example)) if over == "examples" else float(array.mean())
    shift = float(array.mean()) - center
    return Estimate(
        mean=float(array.mean()),
        sd=float(array.std(ddof=1)) if len(array) > 1 else None,
        low=float(intervals[over].low) + shift if over else None,
        high=float(intervals[over].high) + shift if over else None,
        over=over,
    )


def differences(
    values: Mapping[str, Mapping[int, float]], baseline: str, *, higher_is_better: bool = True
) -> dict[str, Difference]:
    """Compare each recipe with the baseline in one metric: one value per recipe and seed that the baseline has too."""
    paired = {
        name: np.array(
            [value - values[baseline][seed] for seed, value in sorted(each.items()) if seed in values[baseline]]
        )
        for name, each in values.items()
    }
    paired = {name: each for name, each in paired.items() if len(each)}
    tested = {name: _paired_t(each) for name, each in paired.items() if name != baseline and len(each) > 1}
    adjusted = dict(zip(tested, holm([p for p, _, _ in tested.values()]), strict=True))
    compared = {}
    for name, each in paired.items():
        p, low, high = tested.get(name, (None, None, None))
        verdict = NOT_TESTED if p is None else NO_DIFFERENCE
        if name == baseline:
            verdict = BASELINE
        elif p is not None and adjusted[name] <= ALPHA:
            verdict = BETTER if (each.mean() > 0) == higher_is_better else WORSE
        mean, p_holm = float(each.mean()), adjusted.get(name)
        compared[name] = Difference(seeds=len(each), mean=mean, low=low, high=high, p=p, p_holm=p_holm, verdict=verdict)
    return compared


def upper_limit(values: Sequence[float]) -> float:
    """Return the upper limit of the mean over seeds at confidence 1 - ALPHA, one-sided, by the t distribution.

    Of one seed it is the value itself, since nothing is known of the spread.
    """
    array = np.asarray(values, dtype=np.float64)
    if len(array) < 2:
        return float(array.mean())
    return float(array.mean() + stats.t.ppf(1 - ALPHA, len(array) - 1) * array.std(ddof=1) / np.sqrt(len(array)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p values by Holm's step-down method (1979); a hypothesis is rejected where its value is <= alpha."""
    order = np.argsort(p_values, kind="stable")
    steps = np.asarray(p_values, dtype=np.float64)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0) if len(order) else steps
    return adjusted.tolist()


def _paired_t(differences: Floats) -> tuple[float, float, float]:
    """Return p, low and high of the mean of at least two paired differences."""
    if np.ptp(differences) <= 1e-12 * np.abs(differences).max():
        mean = float(differences[0])
        return (1.0 if mean == 0 else 2.0 ** (1 - len(differences))), mean, mean
    result = stats.ttest_1samp(differences, 0.0)
    interval = result.confidence_interval(1 - ALPHA)
    return float(result.pvalue), float(interval.low), float(interval.high)
