"""Next-sentence prediction: say whether the second text really follows the first."""

from typing import ClassVar, Literal

from maskwright.pretext.objectives.pair import PairObjective


class NextSentencePrediction(PairObjective):
    """Tell real next texts (label 0) from random ones (label 1) (Devlin et al. 2019, section 3.1)."""

    kind: Literal["nsp"] = "nsp"
    needs: ClassVar[frozenset[str]] = frozenset({"next_sentence_label"})
