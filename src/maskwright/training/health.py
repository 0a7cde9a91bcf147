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


def detection_line(measured: Measured) -> str:
    """Say in a line how a detector of replaced tokens stands on held-out text.

    What it must beat is knowing only how many tokens are replaced: calling each one original is right for all the
    others, and costs the entropy of that share.

    Args:
        measured: Its loss, its accuracy and its details (`ReplacedTokenDetection.details`).
    """
    replaced = measured.details["replaced"]
    precision, recall = measured.details.get("precision"), measured.details.get("recall", 0.0)
    blind = _entropy(replaced)
    if not replaced:
        verdict = "nothing to detect: the generator guesses every token right"
    elif not math.isfinite(measured.loss):
        verdict = "the loss is not finite: lower the learning rate"
    elif recall < 0.01:
        verdict = "detects nothing yet: it calls every token original"
    elif measured.loss > 0.97 * blind:
        verdict = "no better yet than knowing how many are replaced"
    elif measured.loss > 0.8 * blind:
        verdict = "has begun to detect"
    else:
        verdict = "detects well"
    named = "it names none" if precision is None else f"{precision:.1%} of what it names is right"
    return (
        f"the generator replaced {replaced:.1%} of the tokens, {recall:.1%} of these are found, {named}; held-out loss "
        f"{measured.loss:.3f} nats against {blind:.3f} for knowing only how many there are: {verdict}"
    )


def _entropy(share: float) -> float:
    """Entropy of a yes that has this share, in nats."""
    return -sum(part * math.log(part) for part in (share, 1 - share) if part > 0)
