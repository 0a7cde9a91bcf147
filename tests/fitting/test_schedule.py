import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from maskwright.fitting.budget import rate_factor
from maskwright.recipes.optimization import Training

STEPS, WARM = 1_000_000, 10_000


def test_bert_rate_jumps_down_when_warmup_ends() -> None:
    # recipes: BERT's rate at step W is peak (1 - W/T), at W - 1 it is peak (W - 1)/W.
    share = WARM / STEPS
    assert rate_factor("linear_jump", WARM / STEPS, share) == pytest.approx(1 - WARM / STEPS)
    assert rate_factor("linear_jump", (WARM - 1) / STEPS, share) == pytest.approx((WARM - 1) / WARM)


def test_electra_rate_never_exceeds_99_percent() -> None:
    highest = max(rate_factor("linear_product", step / STEPS, WARM / STEPS) for step in range(0, STEPS, 100))
    assert highest == pytest.approx(0.99)


def test_fairseq_rate_reaches_the_peak_and_falls_without_a_jump() -> None:
    assert rate_factor("linear", 0.1, 0.1) == 1.0
    assert rate_factor("linear", 0.0999, 0.1) == pytest.approx(0.999)
    assert rate_factor("linear", 0.55, 0.1) == pytest.approx(0.5)
    assert rate_factor("linear", 1.0, 0.1) == 0.0


def test_modernbert_rate_is_constant_after_warmup_and_decays_by_the_square_root_at_the_end() -> None:
    def rate(progress: float) -> float:
        return rate_factor("warmup_stable_decay", progress, 0.1, 0.2)

    assert rate(0.05) == pytest.approx(0.5)
    assert rate(0.1) == rate(0.5) == 1.0
    assert rate(0.8) == pytest.approx(1.0)
    assert rate(0.85) == pytest.approx(0.001 + 0.999 * (1 - 0.25**0.5))
    assert rate(1.0) == pytest.approx(0.001)


def test_a_share_of_decay_that_does_nothing_or_overlaps_with_warmup_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"decay_share 0\.5 has no effect with schedule 'linear'"):
        Training(decay_share=0.5)
    with pytest.raises(ValidationError, match="warmup_steps 600 of 1000 steps overlap"):
        Training(schedule="warmup_stable_decay", decay_share=0.5, steps=1000, warmup_steps=600)


@given(
    st.sampled_from(["linear", "linear_jump", "linear_product", "warmup_stable_decay"]),
    st.floats(0, 1),
    st.floats(0, 0.99),
)
def test_rate_is_a_share_of_the_peak(shape: str, progress: float, warmup: float) -> None:
    assert 0 <= rate_factor(shape, progress, warmup) <= 1
