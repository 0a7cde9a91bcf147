"""The judge of ERNIE's dialogue language model: say whether a dialogue is real."""

from typing import ClassVar, Literal

from maskwright.pretext.objectives.pair import PairObjective


class DialogueJudgement(PairObjective):
    """Tell real dialogues (label 0) from those with a turn from elsewhere (label 1) (Sun et al. 2019, section 3.3).

    The paper's dialogue language model is this together with the masked language model on the same dialogues; it is
    not in the released code.
    """

    kind: Literal["dlm"] = "dlm"
    needs: ClassVar[frozenset[str]] = frozenset({"dialogue_label"})
