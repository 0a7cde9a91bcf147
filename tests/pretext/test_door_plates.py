"""Choices by bare name, by fields, in tuples, as JSON and in JSON Schema."""

from typing import Annotated

import pytest
from pydantic import Field

from maskwright.core.errors import RecipeError
from maskwright.core.spec import Spec, validate
from maskwright.pretext.formats import (
    Dialogue,
    DocSentences,
    Format,
    FormatChoice,
    FullSentences,
    SegmentPair,
    SentencePair,
)
from maskwright.pretext.masking import (
    LevelMasking,
    Masking,
    MaskingChoice,
    NgramMasking,
    PMIMasking,
    SpanMasking,
    TokenMasking,
    WholeWordMasking,
)
from maskwright.pretext.objectives import (
    DialogueJudgement,
    MaskedLanguageModeling,
    NextSentencePrediction,
    Objective,
    ObjectiveChoice,
    SentenceOrderPrediction,
    SpanBoundaryObjective,
)
from maskwright.pretext.replacement import MaskRandomKeep, ReplacementChoice


class Choices(Spec):
    format: FormatChoice = SegmentPair()
    masking: MaskingChoice = TokenMasking()
    replacement: ReplacementChoice = MaskRandomKeep()
    objectives: Annotated[tuple[ObjectiveChoice, ...], Field(min_length=1)] = (MaskedLanguageModeling(),)


@pytest.mark.parametrize("member", [SegmentPair, SentencePair, FullSentences, DocSentences])
def test_every_format_is_chosen_by_its_bare_name(member: type[Spec]) -> None:
    kind = member.model_fields["kind"].default
    assert isinstance(validate(Choices, {"format": kind}).format, member)


@pytest.mark.parametrize(
    "member",
    [
        NgramMasking,
        SpanMasking,
        LevelMasking,
        PMIMasking,
        SentenceOrderPrediction,
        SpanBoundaryObjective,
        DialogueJudgement,
        Dialogue,
    ],
)
def test_every_member_is_chosen_by_its_bare_name(member: type[Spec]) -> None:
    kind = member.model_fields["kind"].default
    chosen = validate(Choices, {room: kind} if (room := _room(member)) != "objectives" else {room: [kind]})
    assert getattr(chosen, room) == ((member(),) if room == "objectives" else member())
    assert Choices.model_validate_json(chosen.model_dump_json()) == chosen


def _room(member: type[Spec]) -> str:
    return next(name for base, name in _ROOMS.items() if issubclass(member, base))


_ROOMS: dict[type[Spec], str] = {Format: "format", Masking: "masking", Objective: "objectives"}


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
    assert {
        "SegmentPair",
        "DocSentences",
        "TokenMasking",
        "MaskRandomKeep",
        "NextSentencePrediction",
    } <= definitions


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
