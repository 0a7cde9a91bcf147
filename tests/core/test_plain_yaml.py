"""YAML as the core schema 1.2 reads it: no Norway problem, no octals by accident, exponents are numbers."""

import math

import pytest

from maskwright.core.plain_yaml import read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("true", True),
        ("~", None),
        ("nan", "nan"),
        ("010", 10),
        ("0o10", 8),
        ("-7", -7),
        ("1:30", "1:30"),
        ("2024-05-01", "2024-05-01"),
        ("1e-4", 1e-4),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("'1e-4'", "1e-4"),
        ("'true'", "true"),
        ("[no, {a: , b: yes}]", ["no", {"a": None, "b": "yes"}]),
        ("{no: 1e-1}", {"no": 0.1}),
    ],
)
def test_read_yaml_reads_scalars_by_the_core_schema(text: str, value: object) -> None:
    actual = read_yaml(text)
    assert actual == value
    assert type(actual) is type(value)


@pytest.mark.parametrize("text", ["[1, 2", "a: b: c", "!!int x", "!!python/name:os.system x", "{[a]: 1}", "\x00"])
def test_read_yaml_refuses_the_rest_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"\A.+\Z"):
        read_yaml(text)
