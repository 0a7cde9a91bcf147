"""Choices by bare name, by fields, in tuples, as JSON and in JSON Schema."""

from typing import Annotated, Any, get_args

import pytest
from pydantic import Field

from maskwright.core.errors import RecipeError
from maskwright.core.spec import Spec, validate
from maskwright.pretext import formats, masking, objectives, replacement
from maskwright.pretext.formats import Format, FormatChoice, FullSentences, SegmentPair
from maskwright.pretext.masking import Masking, MaskingChoice, TokenMasking, WholeWordMasking
from maskwright.pretext.objectives import MaskedLanguageModeling, NextSentencePrediction, Objective, ObjectiveChoice
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


@pytest.mark.parametrize("axis", AXES)
def test_every_member_is_on_its_door_plate(axis: str) -> None:
    choice, base, plate = AXES[axis]
    named = {name for name in plate.__all__ if isinstance(getattr(plate, name), type)}
    assert {member.__name__ for member in members(choice)} <= named
    # What the axis exports of its own kind can be chosen, unless it is there to be built upon.
    built_upon = {name for name in named if "kind" in getattr(getattr(plate, name), "model_fields", {})} - {
        member.__name__ for member in members(choice)
    }
    assert all(getattr(plate, name).model_fields["kind"].is_required() for name in built_upon)
    assert all(issubclass(member, base) for member in members(choice))
    kinds = [member.model_fields["kind"].default for member in members(choice)]
    assert len(set(kinds)) == len(kinds)


def test_rooms_of_one_and_of_several_members_take_names_and_fields() -> None:
    choices = validate(
        Choices,
        {
            "masking": {"kind": "whole_word", "budget": "words"},
            "replacement": "mask_random_keep",
            "objectives": ["mlm", {"kind": "nsp", "weight": 0.5}],
        },
    )
    assert choices.masking == WholeWordMasking(budget="words")
    assert choices.replacement == MaskRandomKeep()
    assert choices.objectives == (MaskedLanguageModeling(), NextSentencePrediction(weight=0.5))


def test_choices_survive_json() -> None:
    choices = Choices(
        format=FullSentences(separator_after="sentence"),
        masking=WholeWordMasking(rate=0.4),
        replacement=MaskRandomKeep(mask=1, random=0, keep=0),
        objectives=(NextSentencePrediction(), MaskedLanguageModeling(weight=2)),
    )
    assert Choices.model_validate_json(choices.model_dump_json()) == choices


def test_schema_names_every_member() -> None:
    definitions = set(Choices.model_json_schema()["$defs"])
    assert {member.__name__ for _, member in EVERY_MEMBER} <= definitions


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ({"masking": "whole_wrd"}, "whole_word"),
        ({"format": {"kind": "segment_pair", "short_shar": 0.2}}, "short_share"),
        ({"replacement": {"kind": "mask_random_keep", "maks": 1}}, "mask"),
        ({"replacement": {"kind": "mask_random"}}, "mask_random_keep"),
    ],
)
def test_misspelt_choices_name_the_nearest(data: dict[str, object], hint: str) -> None:
    with pytest.raises(RecipeError, match=hint):
        validate(Choices, data)
