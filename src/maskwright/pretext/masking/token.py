"""BERT's masking: single tokens, uniformly; or, as DistilBERT does it, rare ones rather than frequent ones."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from maskwright.core.errors import RecipeError
from maskwright.core.randomness import Draws
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.base import Masking
from maskwright.pretext.masking.order import FloatArray, RandomOrder


class TokenMasking(Masking):
    """Distinct tokens without replacement, as many as the budget says (Devlin et al. 2019, 3.1).

    Every unit is one token. A sequence with fewer candidates than its budget gives up all of them.

    DEVIATION: where rare tokens are favoured, each sequence draws its own share. The original draws over the whole
    batch (distillation: distiller.py:189-252), so that what a sequence gives up depends on its company there; here it
    is a function of the sequence alone, as everywhere.

    Attributes:
        favour: "uniform": all tokens alike; "rare": drawn with the weights max(count, 1)^-smoothing, counts being
            those of the corpus (distillation: train.py:262-280).
        smoothing: How strongly rare tokens are favoured, 0 being not at all; it belongs to "rare".
    """

    kind: Literal["token"] = "token"
    favour: Literal["uniform", "rare"] = "uniform"
    smoothing: Annotated[float, Field(ge=0, le=2)] = 0.7

    @model_validator(mode="after")
    def _makes_sense(self) -> "TokenMasking":
        default = type(self).model_fields["smoothing"].default
        if self.favour == "uniform" and self.smoothing != default:
            raise ValueError(
                f"smoothing {self.smoothing:g} weighs tokens by how rare they are, and favour 'uniform' weighs all "
                f"alike; set favour to 'rare' or leave smoothing {default:g}"
            )
        return self

    @property
    def uses_token_counts(self) -> bool:
        """Whether rare tokens are favoured (see `Masking.uses_token_counts`)."""
        return self.favour == "rare"

    def choose(self, instances: Instances, maskable: BoolArray, budgets: IntArray, draws: Draws) -> Selection:
        """Take the first tokens of each sequence's random order (see `Masking.choose`)."""
        return self.choose_knowing(instances, maskable, budgets, draws, None)

    def choose_knowing(
        self,
        instances: Instances,
        maskable: BoolArray,
        budgets: IntArray,
        draws: Draws,
        token_counts: IntArray | None,
    ) -> Selection:
        """Take the first tokens of each sequence's weighted random order (see `Masking.choose_knowing`).

        Raises:
            RecipeError: If rare tokens are to be favoured and nobody counted them.
        """
        weights = self._weights(token_counts)
        chosen = RandomOrder.of(maskable, instances, draws, weights=weights).first(budgets)
        return Selection(chosen, chosen + 1)

    def _weights(self, token_counts: IntArray | None) -> FloatArray | None:
        """Return the weight of each id, shape (V,); None where all are alike."""
        if self.favour == "uniform":
            return None
        if token_counts is None:
            raise RecipeError(
                "masking.favour is 'rare', but how often tokens stand in the corpus is not known here",
                todo="Set masking.favour=uniform.",
            )
        weights: FloatArray = np.maximum(token_counts, 1).astype(np.float64) ** -self.smoothing
        return weights
