"""Choices by bare name, by fields, in tuples, as JSON and in JSON Schema."""

from typing import Annotated, Any, get_args

import pytest
from pydantic import Field

from maskwright.core.spec import Spec, validate
from maskwright.pretext import formats, masking, objectives, replacement
from maskwright.pretext.formats import Format, FormatChoice, SegmentPair
from maskwright.pretext.masking import Masking, MaskingChoice, TokenMasking
from maskwright.pretext.objectives import MaskedLanguageModeling, Objective, ObjectiveChoice
from maskwright.pretext.replacement import MaskRandomKeep, Replacement, ReplacementChoice


class Choices(Spec):
    format: FormatChoice = SegmentPair()
    masking: MaskingChoice = TokenMasking()
    replacement: ReplacementChoice = MaskRandomKeep()
    objectives: Annotated[tuple[ObjectiveChoice, ...], Field(min_length=1)] = (MaskedLanguageModeling(),)


def members(choice: Any) -> list[type[Spec]]:
    """The classes that a axis's union names."""
    return list(get_args(get_args(choice)[0]))


AXES: dict[str, tuple[Any, type[Spec], Any]] = {
    "format": (FormatChoice, Format, formats),
    "masking": (MaskingChoice, Masking, masking),
    "replacement": (ReplacementChoice, Replacement, replacement),
    "objectives": (ObjectiveChoice, Objective, objectives),
}
EVERY_MEMBER = [(axis, member) for axis, (choice, _, _) in AXES.items() for member in members(choice)]


@pytest.mark.parametrize(("axis", "member"), EVERY_MEMBER)
def test_every_member_is_chosen_by_its_bare_name(axis: str, member: type[Spec]) -> None:
    kind = member.model_fields["kind"].default
    chosen = validate(Choices, {axis: [kind] if axis == "objectives" else kind})
    assert getattr(chosen, axis) == ((member(),) if axis == "objectives" else member())
    assert Choices.model_validate_json(chosen.model_dump_json()) == chosen
