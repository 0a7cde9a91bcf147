"""Specs: overrides of every field, errors for unknown names and invalid values, JSON round trips."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import Field, PositiveInt

from maskwright.core.errors import RecipeError
from maskwright.core.fields import field_paths
from maskwright.core.spec import ByName, Spec, fingerprint, override, parse_overrides, validate


class Token(Spec):
    kind: Literal["token"] = "token"
    rate: Annotated[float, Field(gt=0, lt=1)] = 0.15


class WholeWord(Spec):
    kind: Literal["whole_word"] = "whole_word"
    rate: Annotated[float, Field(gt=0, lt=1)] = 0.15
    longest: PositiveInt | None = None


class Span(Spec):
    kind: Literal["span"] = "span"
    decay: Annotated[float, Field(gt=0, lt=1)]


class Mlm(Spec):
    kind: Literal["mlm"] = "mlm"
    weight: Annotated[float, Field(gt=0)] = 1.0


class Nsp(Spec):
    kind: Literal["nsp"] = "nsp"
    weight: Annotated[float, Field(gt=0)] = 1.0


class AdamW(Spec):
    kind: Literal["adamw"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6


class Phase(Spec):
    share: float = 1.0


class Training(Spec):
    steps: PositiveInt = 1_000_000
    learning_rate: float = 1e-4
    phases: tuple[Phase, ...] = (Phase(share=0.9), Phase(share=0.1))
    optimizer: Annotated[AdamW, ByName] = AdamW(eps=1e-8)


Masking = Annotated[Token | WholeWord | Span, Field(discriminator="kind"), ByName]
Objective = Annotated[Mlm | Nsp, Field(discriminator="kind"), ByName]


class System(Spec):
    synonyms: ClassVar[Mapping[str, str]] = {"lr": "training.learning_rate"}

    name: str = "bert"
    dropout: float = 0.1
    masking: Masking = Token()
    objectives: Annotated[tuple[Objective, ...], Field(min_length=1)] = (Mlm(), Nsp())
    training: Training = Training()
    extra: Phase | None = None
    sharing: Literal["none", "all"] | None = None


def changed(*texts: str) -> System:
    return override(System(), parse_overrides(texts))


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("a.b=0.3", ("a.b", 0.3)),
        ("a=1e-4", ("a", 1e-4)),
        ("a=[1e-1, 2]", ("a", [0.1, 2])),
        ("a=null", ("a", None)),
        ("a={kind: token, rate: 2e-1}", ("a", {"kind": "token", "rate": 0.2})),
        ("a=", ("a", "")),
        ("a=no", ("a", "no")),
    ],
)
def test_parse_overrides_reads_values_as_yaml(text, pair):
    assert parse_overrides([text]) == [pair]


@pytest.mark.parametrize("text", ["masking.rate", "=0.3", "", "a=[1, 2"])
def test_parse_overrides_refuses_what_it_cannot_read(text):
    with pytest.raises(RecipeError, match="cannot read") as caught:
        parse_overrides([text])
    assert "--" not in str(caught.value), "more than one option takes overrides"


@pytest.mark.parametrize("overrides", ["masking.rate=0.3", {"masking.rate": 0.3}])
def test_parse_overrides_wants_a_list(overrides):
    with pytest.raises(RecipeError, match=r"a (str|dict)\. Allowed: a list of texts"):
        parse_overrides(overrides)


@pytest.mark.parametrize(
    ("texts", "path", "value"),
    [
        (["masking.rate=0.3"], "masking", Token(rate=0.3)),
        (["masking=whole_word"], "masking", WholeWord()),
        (["masking.kind=whole_word"], "masking", WholeWord()),
        (["masking.rate=0.3", "masking.kind=token"], "masking", Token(rate=0.3)),
        (["masking=whole_word", "masking.rate=0.3"], "masking", WholeWord(rate=0.3)),
        (["masking.kind=span", "masking.decay=0.2"], "masking", Span(decay=0.2)),
        (["masking={kind: span, decay: 0.2}"], "masking", Span(decay=0.2)),
        (["masking=whole_word", "masking.longest=3", "masking.longest=null"], "masking", WholeWord()),
        (["masking=whole_word", "masking.longest=3", "masking.longest=none"], "masking", WholeWord()),
        (["name=none"], "name", "none"),
        (["sharing=none"], "sharing", "none"),
        (["extra.share=0.5", "extra=none"], "extra", None),
        (["objectives=[nsp, {kind: mlm, weight: 2}]"], "objectives", (Nsp(), Mlm(weight=2))),
        (["objectives.mlm.weight=2"], "objectives", (Mlm(weight=2), Nsp())),
        (["objectives.1.weight=2"], "objectives", (Mlm(), Nsp(weight=2))),
        (["objectives=[nsp]", "objectives.nsp.weight=3"], "objectives", (Nsp(weight=3),)),
        (["extra.share=0.5"], "extra", Phase(share=0.5)),
    ],
)
def test_override_changes_the_named_field_only(texts, path, value):
    result = changed(*texts)
    assert result == System().replace(**{path: value})


def test_override_reaches_into_nested_parts():
    result = changed(
        "training.optimizer.betas=[0.9, 0.98]", "training.phases.0.share=0.8", "training.phases.1.share=0.2"
    )
    assert result.training == Training(
        optimizer=AdamW(eps=1e-8, betas=(0.9, 0.98)), phases=(Phase(share=0.8), Phase(share=0.2))
    )
    assert changed("training.optimizer.betas.1=0.98").training.optimizer.betas == (0.9, 0.98)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("maskng.rate=0.3", ["unknown field 'maskng'", "Did you mean 'masking'?"]),
        ("masking.rat=0.3", ["unknown field 'rat' in 'masking'", "kind, rate", "Did you mean 'masking.rate'?"]),
        ("learning_rate=1", ["Did you mean 'training.learning_rate'?"]),
        ("zzz=1", ["unknown field 'zzz'", "Allowed: name, dropout, masking, objectives, training, extra, sharing."]),
        ("objectives.mln.weight=1", ["'objectives'", "Allowed: mlm, nsp.", "Did you mean 'objectives.mlm'?"]),
        ("objectives.mlm.wieght=1", ["unknown field 'wieght' in 'objectives.mlm'", "'objectives.mlm.weight'?"]),
        ("masking.rate.x=1", ["'masking.rate' is 0.15, which has no fields"]),
        ("masking=whole_wrd", ["masking: unknown choice 'whole_wrd'", "did you mean 'whole_word'?"]),
        ("objectives=[mlm, nso]", ["objectives.1: unknown choice 'nso'", "did you mean 'nsp'?"]),
        ("objectives=mlm", ["objectives: must be a list: [mlm]"]),
        ("objectives=[]", ["objectives: must have at least 1 item; found []"]),
        ("masking.rate=2", ["masking.rate: must be less than 1; found 2"]),
        ("masking.rate=often", ["masking.rate: must be a number; found 'often'"]),
        ("training.optimizer.betas=[0.9]", ["training.optimizer.betas.1: a value is missing"]),
        ("training.optimizer.betas=0.9", ["training.optimizer.betas: must be a list, e.g. [a, b]; found 0.9"]),
        ("masking=3", ["masking: must be one of token, whole_word, span", "found 3"]),
        ("lr=1", ["unknown field 'lr'", "Did you mean 'training.learning_rate'?"]),
        ("masking={kind: span}", ["masking.decay: a value is missing"]),
        ("training.optimizer=lamb", ["training.optimizer.kind: must be 'adamw'; found 'lamb'"]),
    ],
)
def test_override_explains_what_is_wrong(text, words):
    with pytest.raises(RecipeError) as caught:
        changed(text)
    for word in words:
        assert word in str(caught.value)


def test_override_of_a_field_of_an_unknown_member_names_the_members():
    message = r"'masking' is 'whole_wrd', which has no fields\. Allowed: token, whole_word, span"
    with pytest.raises(RecipeError, match=message):
        changed("masking=whole_wrd", "masking.rate=0.3")


def test_validate_names_the_source_and_every_problem():
    data = {"masking": {"rate": 0.2}, "objectives": [{"kind": "mlm", "wait": 1}], "dropout": "x"}
    with pytest.raises(RecipeError) as caught:
        validate(System, data, source="mine.json")
    message = str(caught.value)
    assert message.startswith("mine.json: ")
    assert "masking: 'kind' is missing; allowed: token, whole_word, span" in message
    assert "objectives.mlm.wait: unknown field; did you mean 'weight'?" in message
    assert "dropout: " in message


def test_replace_checks_and_explains():
    assert System().replace(dropout=0.0).dropout == 0.0
    with pytest.raises(RecipeError, match="dropuot: unknown field; did you mean 'dropout'"):
        System().replace(dropuot=0.0)


def test_field_paths_follow_unions_and_tuples():
    paths = field_paths(System)
    assert {"masking.rate", "masking.longest", "masking.decay", "objectives.nsp.weight"} <= set(paths)
    assert {"training.phases.0.share", "training.optimizer.eps", "extra.share"} <= set(paths)
    assert len(paths) == len(set(paths))


def test_fingerprint_ignores_order_of_keys_and_kind_of_sequence():
    assert fingerprint({"a": 1, "b": [1, 2]}) == fingerprint({"b": (1, 2), "a": 1})
    assert fingerprint(System()) == fingerprint(System().model_dump())
    assert fingerprint({"x": System()}) != fingerprint({"x": System(name="other")})
    assert len(fingerprint("")) == 16


def test_fingerprint_is_stable_across_versions():
    # Caches and run folders on disk are named by it.
    assert fingerprint({"rate": 0.15, "names": ["字", None, True]}) == "3171233ae74b95a1"
