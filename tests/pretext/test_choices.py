"""Choices by bare name, in tuples, as JSON."""

from typing import Annotated

from pydantic import Field

from maskwright.core.fields import members
from maskwright.core.spec import Spec, validate
from maskwright.pretext.formats import FormatChoice, SegmentPair
from maskwright.pretext.masking import MaskingChoice, TokenMasking
from maskwright.pretext.objectives import MaskedLanguageModeling, ObjectiveChoice
from maskwright.pretext.replacement import MaskRandomKeep, ReplacementChoice


class Choices(Spec):
    format: FormatChoice = SegmentPair()
    masking: MaskingChoice = TokenMasking()
    replacement: ReplacementChoice = MaskRandomKeep()
    objectives: Annotated[tuple[ObjectiveChoice, ...], Field(min_length=1)] = (MaskedLanguageModeling(),)


def test_every_member_is_chosen_by_its_bare_name() -> None:
    for axis, field in Choices.model_fields.items():
        for member in members(field.annotation):
            kind = member.model_fields["kind"].default
            chosen = validate(Choices, {axis: [kind] if axis == "objectives" else kind})
            assert getattr(chosen, axis) == ((member(),) if axis == "objectives" else member())
            assert Choices.model_validate_json(chosen.model_dump_json()) == chosen
