"""Where the bias of an output over the vocabulary begins."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from maskwright.core.types import IntArray

InitialBias = Literal["zero", "frequencies"]
"""At "zero" (all papers), or at the logarithm of the tokens' "frequencies" in the corpus, which spares a short run the
steps in which it learns nothing else."""


def begin_bias(bias: Tensor, initial: InitialBias, token_counts: IntArray | None) -> None:
    """Set a freshly initialised output bias in place; it stays at zero where counts are not known.

    Args:
        bias: Shape (V,), zeros.
        initial: Where it begins.
        token_counts: Shape (V,), how often each id stands in the corpus.
    """
    if initial == "frequencies" and token_counts is not None:
        # One is added to each count: an entry that the corpus lacks is rare, not impossible.
        shares = np.log(token_counts.astype(np.float64) + 1)
        with torch.no_grad():
            bias.copy_(torch.from_numpy(shares - shares.mean()))
