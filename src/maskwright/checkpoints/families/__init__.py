"""The families of Hugging Face classes. To add one: its table in a module here and its entry in `FAMILIES`."""

from collections.abc import Mapping
from types import MappingProxyType

from maskwright.checkpoints.families.base import Family
from maskwright.checkpoints.families.maskwright import MASKWRIGHT
from maskwright.checkpoints.families.modernbert import MODERNBERT
from maskwright.checkpoints.families.tables import ALBERT, BERT, DISTILBERT, ELECTRA, ERNIE, ROBERTA
from maskwright.core.errors import ConversionError, suggestion

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {family.name: family for family in (BERT, ROBERTA, ALBERT, ELECTRA, DISTILBERT, ERNIE, MODERNBERT, MASKWRIGHT)}
)

_SAME_ARCHITECTURE = {"xlm-roberta": "roberta", "camembert": "roberta"}
"""Model types with the classes and weight names of a family; only their tokenizers differ."""

__all__ = ["FAMILIES", "Family", "family_named"]


def family_named(name: str, source: str = "") -> Family:
    """Return the table of a family by Hugging Face's `model_type`; `source` names the file in errors."""
    name = _SAME_ARCHITECTURE.get(name, name)
    if name in FAMILIES:
        return FAMILIES[name]
    raise ConversionError(
        f"{source}: unsupported model_type {name!r}" if source else f"unknown model_type {name!r}",
        allowed=", ".join((*FAMILIES, *_SAME_ARCHITECTURE)),
        hint=suggestion(name, FAMILIES, "Use transformers for this model, or choose another", cutoff=0.8),
    )
