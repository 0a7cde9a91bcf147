"""Sentence-order prediction: say whether two neighbouring texts have been swapped."""

from typing import ClassVar, Literal

from maskwright.pretext.objectives.pair import PairObjective


class SentenceOrderPrediction(PairObjective):
    """Tell texts in order (label 0) from swapped ones (label 1) (Lan et al. 2019, section 3.1).

    Both texts come from one place in one document, so the topic gives nothing away, as it does in next-sentence
    prediction.
    """

    kind: Literal["sop"] = "sop"
    needs: ClassVar[frozenset[str]] = frozenset({"order_label"})
