"""Select, then replace: the two steps from instances to examples."""

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
    """Mask part of each sequence, deterministically given `draws`.

    Args:
        instances: The flat batch of B sequences.
        masking: Selects the tokens.
        replacement: Replaces them.
        draws: Keyed random numbers, one key for each of the B sequences.
        vocabulary: Vocabulary statistics.
    """
    selection = masking.select(instances, draws, vocabulary.token_counts)
    corrupted = replacement.replace_tokens(instances, selection, draws, vocabulary)
    return Examples(instances=instances, selection=selection, corrupted=corrupted)
