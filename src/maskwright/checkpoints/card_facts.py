"""License and origin of a model in its card (README.md), kept by models made from it."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from maskwright.core.errors import MaskwrightError
from maskwright.core.plain_yaml import read_yaml
from maskwright.core.storage.files import read_if_exists

CARD, RECORD = "README.md", "run.json"
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_LONGEST = 200
_LICENSE = ("license", "license_name", "license_link")
_EMBEDDING = {"sentence-transformers", "sentence-similarity", "feature-extraction"}
"""Tags of sentence embedders, by which the hub lists them. Models for other tasks that begin with one drop them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """Entries of a model card; "" and () if it has none. `license` and `base_model` are names of the model hub.

    `license_name` and `license_link` describe a license that the hub calls "other".
    """

    license: str = ""
    license_name: str = ""
    license_link: str = ""
    language: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    base_model: str = ""

    @classmethod
    def of(cls, data: Any) -> "CardFacts":
        """Read entries as YAML or JSON give them; those of another type are ignored."""
        entries = data if isinstance(data, Mapping) else {}
        first = {name: next(iter(_texts(entries.get(name))), "") for name in (*_LICENSE, "base_model")}
        if not _HUB_NAME.fullmatch(first["base_model"]):
            first["base_model"] = ""
        return cls(language=_texts(entries.get("language")), tags=_texts(entries.get("tags")), **first)

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def front_matter(
        self, library: str, pipeline: str, *, license: str = "", language: str = "", tags: tuple[str, ...] = ()
    ) -> list[str]:
        """Return lines of a card's front matter; license and language replace the model's, tags are added."""
        kept = [tag for tag in self.tags if pipeline in _EMBEDDING or tag not in _EMBEDDING]
        is_own_license = license in ("", self.license)
        entries = {
            "license": license or self.license,
            "license_name": self.license_name if is_own_license else "",
            # A relative link is to a file of the model's own repository.
            "license_link": self.license_link if is_own_license and "://" in self.license_link else "",
            "language": language or (self.language[0] if len(self.language) == 1 else list(self.language)),
            "base_model": self.base_model,
            "library_name": library,
            "pipeline_tag": pipeline,
            "tags": list(dict.fromkeys((*tags, *kept))),
        }
        stated = {name: value for name, value in entries.items() if value}
        text = yaml.safe_dump(stated, sort_keys=False, allow_unicode=True, width=2 * _LONGEST)
        return ["---", *text.rstrip("\n").split("\n"), "---", ""]


def read_card_facts(folder: Path, name: str = "") -> CardFacts:
    """Return what the card of a model folder states, else what a run recorded of the model that it began with.

    `name` is the name that a model made from it states as its base model, if it is one of the hub.
    """
    facts = CardFacts.of(_front_matter(folder / CARD))
    if facts == CardFacts():
        try:
            record = read_if_exists(folder / RECORD)
        except MaskwrightError:
            record = {}
        begun_with = record.get("begun_with")
        facts = CardFacts.of(begun_with.get("card") if isinstance(begun_with, Mapping) else None)
    if _HUB_NAME.fullmatch(name) and not Path(name).exists():
        return replace(facts, base_model=name)
    return facts


def _front_matter(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    start, _, rest = text.partition("---\n")
    if start.strip() or "\n---" not in rest:
        return None
    try:
        return read_yaml(rest.partition("\n---")[0])
    except ValueError:
        return None


def _texts(value: Any) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else [value]
    return tuple(text for text in texts if isinstance(text, str) and 0 < len(text) <= _LONGEST and text.isprintable())
