"""Select, then replace: the two steps between a laid-out batch and what objectives read."""

from maskwright.core.randomness import Draws
from maskwright.core.types import Examples, Instances
from maskwright.pretext.masking import Masking
from maskwright.pretext.replacement import Replacement, VocabularyFacts


def corrupt(
    instances: Instances,
    masking: Masking,
    replacement: Replacement,
    draws: Draws,
    vocabulary: VocabularyFacts,
) -> Examples:
    """Hide part of each sequence; the same draws hide the same.

    Args:
        instances: The flat batch of B sequences.
        masking: Which tokens.
        replacement: By what.
        draws: Keyed random numbers, one key for each of the B sequences.
        vocabulary: What masking and replacement may ask about the vocabulary.
    """
    selection = masking.select(instances, draws, vocabulary.token_counts)
    corrupted = replacement.replace_tokens(instances, selection, draws, vocabulary)
    return Examples(instances=instances, selection=selection, corrupted=corrupted)
