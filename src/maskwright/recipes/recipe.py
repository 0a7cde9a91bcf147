"""A recipe says which: one choice on each axis of the BERT family, as one frozen value."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from maskwright.core.spec import Spec
from maskwright.encoder.config import EncoderConfig
from maskwright.pretext.formats import FormatChoice
from maskwright.pretext.masking import MaskingChoice
from maskwright.pretext.objectives import ObjectiveChoice
from maskwright.pretext.replacement import ReplacementChoice
from maskwright.recipes.optimization import Training
from maskwright.text.tokenizer_spec import TokenizerSpec


class MaskRefresh(Spec):
    """When layouts and masks are drawn anew.

    Attributes:
        copies: None draws anew in every epoch (dynamic masks: RoBERTa). A number k draws k times and then
            repeats (static masks: BERT's dupe_factor 10).
    """

    copies: PositiveInt | None = None

    def refresh(self, epoch: int) -> int:
        """Return which drawing an epoch (from 0) uses."""
        return epoch if self.copies is None else epoch % self.copies


class Recipe(Spec):
    """One system of the BERT family at one size.

    Attributes:
        name: "system/size".
        summary: What is special about it, in one line.
        paper: Where the constants come from.
        family: Which Hugging Face classes the weights load into.
        tokenizer: How text becomes tokens.
        format: How running text becomes sequences.
        masking: Which tokens are selected.
        replacement: What stands in their place.
        masks: When masks are drawn anew.
        objectives: What is asked back; the losses are added with their weights.
        encoder: The shape of the encoder.
        training: The published schedule.
    """

    name: str
    summary: str = ""
    paper: str = ""
    family: Literal["bert", "roberta"] = "bert"
    tokenizer: TokenizerSpec
    format: FormatChoice
    masking: MaskingChoice
    replacement: ReplacementChoice
    masks: MaskRefresh = MaskRefresh()
    objectives: Annotated[tuple[ObjectiveChoice, ...], Field(min_length=1)]
    encoder: EncoderConfig
    training: Training

    @model_validator(mode="after")
    def _makes_sense(self) -> "Recipe":
        kinds = [objective.kind for objective in self.objectives]
        if len(set(kinds)) < len(kinds):
            raise ValueError(f"objectives {kinds} name one twice; keep one and set its weight")
        provided = self.format.provides | self.masking.provides
        for objective in self.objectives:
            if missing := objective.needs - provided:
                raise ValueError(
                    f"objective {objective.kind!r} needs {', '.join(sorted(missing))}, which neither "
                    f"format {self.format.kind!r} nor masking {self.masking.kind!r} provides; "
                    "change one of them or drop it"
                )
            if objective.needs_pooler and not self.encoder.pooler:
                raise ValueError(f"objective {objective.kind!r} reads the pooled vector: set encoder.pooler=true")
        if self.training.max_length > self.encoder.max_positions:
            raise ValueError(
                f"training.phases reach length {self.training.max_length}, encoder.max_positions is "
                f"{self.encoder.max_positions}; shorten the one or raise the other"
            )
        return self
