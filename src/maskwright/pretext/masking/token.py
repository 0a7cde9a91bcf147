"""BERT's masking of single tokens, uniform or, as in DistilBERT, weighted towards rare tokens."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from maskwright.core.errors import RecipeError
from maskwright.core.randomness import RandomNumbers
from maskwright.core.spec import Conditions
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.base import FloatArray, Masking, RandomOrder


class TokenMasking(Masking):
    """Tokens sampled without replacement up to the budget (Devlin et al. 2019, 3.1).

    Every unit is one token. A sequence with fewer candidates than its budget has all of them selected.

    DEVIATION: with `sampling` "rare", each sequence is sampled separately. The original samples from the whole batch
    (distillation: distiller.py:189-252), so that a sequence's masks depend on the rest of the batch; here they are a
    function of the sequence alone, as in all maskings.

    Attributes:
        sampling: "uniform", or "rare": sampled with weights max(count, 1)^-smoothing, with the counts of the corpus
            (distillation: train.py:262-280).
        smoothing: Exponent of the weights, only for "rare"; 0 is uniform.
    """

    used_with: ClassVar[Conditions] = {"smoothing": (("sampling", lambda sampling: sampling == "rare"),)}

    kind: Literal["token"] = "token"
    sampling: Literal["uniform", "rare"] = "uniform"
    smoothing: Annotated[float, Field(ge=0, le=2)] = 0.7

    @property
    def uses_token_counts(self) -> bool:
        return self.sampling == "rare"

    def choose(
        self, instances: Instances, maskable: BoolArray, rng: RandomNumbers, token_counts: IntArray | None
    ) -> Selection:
        weights: FloatArray | None = None
        if self.sampling == "rare":
            if token_counts is None:
                raise RecipeError(
                    "masking.sampling is 'rare', but the token counts of the corpus are unknown here",
                    hint="Set masking.sampling=uniform.",
                )
            weights = np.maximum(token_counts, 1).astype(np.float64) ** -self.smoothing
        chosen = RandomOrder.of(maskable, instances, rng, weights=weights).first(self.budgets(instances, rng))
        return Selection(chosen, chosen + 1)
