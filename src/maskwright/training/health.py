"""Is the loss healthy? Against uniform guessing, against guessing by frequency, and against itself earlier."""

import math

from maskwright.training.heldout import Baseline, Measured


def health_line(measured: Measured, baseline: Baseline, vocab_size: int) -> str:
    """Say in a line how a masked language model stands on held-out text.

    Args:
        measured: Its loss and accuracy.
        baseline: What guessing by frequency achieves at the same targets.
        vocab_size: Entries; guessing blindly costs ln(vocab_size) nats.
    """
    loss, unigram = measured.loss, baseline.loss
    if not math.isfinite(loss) or loss > math.log(vocab_size) + 1:
        verdict = "worse than blind guessing: lower the learning rate"
    elif loss > 1.02 * unigram:
        verdict = "has not yet learnt how frequent words are"
    elif loss > 0.97 * unigram:
        verdict = "knows how frequent words are, uses no context yet (a plateau every such model passes)"
    elif loss > 0.8 * unigram:
        verdict = "has begun to use context"
    else:
        verdict = "uses context well"
    return (
        f"held-out loss {loss:.2f} nats against {unigram:.2f} for guessing by frequency; "
        f"{measured.accuracy:.1%} of hidden tokens right against {baseline.accuracy:.1%}: {verdict}"
    )
