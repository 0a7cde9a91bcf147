"""Select, then replace: the two steps from instances to examples."""

from maskwright.core.randomness import RandomNumbers
from maskwright.core.types import Examples, Instances
from maskwright.pretext.masking import Masking
from maskwright.pretext.replacement import Replacement, VocabularyFacts


def corrupt(
    instances: Instances, masking: Masking, replacement: Replacement, rng: RandomNumbers, vocabulary: VocabularyFacts
) -> Examples:
    """Mask part of each of B sequences, deterministically given `rng`, which has a key for each sequence."""
    eligible = replacement.eligible(instances, rng, vocabulary)
    selection = masking.select(instances, rng, vocabulary.token_counts, eligible)
    corrupted = replacement.replace_tokens(instances, selection, rng, vocabulary)
    return Examples(instances=instances, selection=selection, corrupted=corrupted)
