"""YAML values of a command line, with the scalars of the YAML 1.2 core schema.

PyYAML reads YAML 1.1, where the language `no` is false, `010` is eight, `1:30` is ninety and `1e-4` is text.
"""

import re
from typing import Any

import yaml

_INTEGER = r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
_REAL = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
_SCALARS = {
    "bool": "true|True|TRUE|false|False|FALSE",
    "null": "~|null|Null|NULL|",
    "int": _INTEGER,
    "float": _REAL,
}


def read_yaml(text: str) -> Any:
    """Read one YAML value; quoted scalars stay text, and only `true` and `false` are booleans.

    Raises ValueError if it is not YAML.
    """
    try:
        return yaml.load(text, Loader=_CoreLoader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


class _CoreLoader(yaml.SafeLoader):
    """PyYAML's safe loader with the plain scalars of the core schema."""


def _number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int | float:
    written = str(loader.construct_scalar(node))
    if re.fullmatch(_INTEGER, written):
        return int(written, {"0o": 8, "0x": 16}.get(written[:2], 10))
    return float(written.lower().replace(".inf", "inf").replace(".nan", "nan"))


_CoreLoader.yaml_implicit_resolvers = {}
for _name, _pattern in _SCALARS.items():
    _CoreLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(rf"(?:{_pattern})\Z"), None)
_CoreLoader.add_constructor("tag:yaml.org,2002:int", _number)
_CoreLoader.add_constructor("tag:yaml.org,2002:float", _number)
