"""The families of Hugging Face classes. To add one: one file and its entry in `FAMILIES`."""

from collections.abc import Mapping
from types import MappingProxyType

from maskwright.core.errors import ConversionError, unknown_name
from maskwright.huggingface.families.albert import ALBERT
from maskwright.huggingface.families.base import Family
from maskwright.huggingface.families.bert import BERT
from maskwright.huggingface.families.distilbert import DISTILBERT
from maskwright.huggingface.families.electra import ELECTRA
from maskwright.huggingface.families.ernie import ERNIE
from maskwright.huggingface.families.roberta import ROBERTA

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {family.name: family for family in (BERT, ROBERTA, ALBERT, ELECTRA, DISTILBERT, ERNIE)}
)

__all__ = ["FAMILIES", "Family", "family_named"]


def family_named(name: str, source: str = "") -> Family:
    """Return the table of a family by Hugging Face's `model_type`; `source` names the file in errors."""
    if name in FAMILIES:
        return FAMILIES[name]
    problem, allowed, todo = unknown_name("model_type", name, FAMILIES)
    raise ConversionError(f"{source}: {problem}" if source else problem, allowed=allowed, todo=todo)
