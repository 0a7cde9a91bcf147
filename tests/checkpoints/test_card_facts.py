"""Cards keep license, language, tags and base model of the model that they come from."""

from pathlib import Path

import pytest
import yaml

from maskwright.checkpoints.card_facts import CardFacts, read_card_facts
from maskwright.core.storage.files import write_json

FACTS = CardFacts(license="apache-2.0", language=("en",), tags=("sentence-similarity", "a: b"), base_model="org/base")


def write(folder: Path, front: str) -> Path:
    folder.mkdir()
    (folder / "README.md").write_text(f"---\n{front}---\n\n# Title\n\n---\nlicense: mit\n---\n", encoding="utf-8")
    return folder


def test_a_card_is_read_and_its_lines_are_read_again(tmp_path: Path) -> None:
    front = "".join(f"{line}\n" for line in FACTS.front_matter("transformers", "feature-extraction")[1:-2])
    assert yaml.safe_load(front) == {
        "license": "apache-2.0",
        "language": "en",
        "base_model": "org/base",
        "library_name": "transformers",
        "pipeline_tag": "feature-extraction",
        "tags": ["sentence-similarity", "a: b"],
    }
    assert read_card_facts(write(tmp_path / "one", front)) == FACTS
    assert CardFacts.of(FACTS.to_json()) == FACTS


def test_arguments_come_first_and_tags_are_added() -> None:
    lines = FACTS.front_matter("x", "y", license="mit", language="no", tags=("maskwright", "sentence-similarity"))
    front = yaml.safe_load("\n".join(lines[1:-2]))
    assert (front["license"], front["language"]) == ("mit", "no")
    assert front["tags"] == ["maskwright", "sentence-similarity", "a: b"]


def test_another_license_keeps_its_name_and_link(tmp_path: Path) -> None:
    front = "license: other\nlicense_name: acme\nlicense_link: https://example.com/acme\n"
    facts = read_card_facts(write(tmp_path / "one", front), "org/base")
    assert CardFacts.of(facts.to_json()) == facts
    for license in ("", "other"):
        lines = facts.front_matter("x", "y", license=license)
        assert lines[1:4] == front.splitlines()
    lines = facts.front_matter("x", "y", license="mit")
    assert not [line for line in lines if line.startswith("license_")]


def test_only_sentence_embedders_keep_the_tags_of_one() -> None:
    lines = FACTS.front_matter("transformers", "text-classification")
    assert yaml.safe_load("\n".join(lines[1:-2]))["tags"] == ["a: b"]


def test_a_run_without_card_keeps_that_of_its_initial_model(tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", {"begun_with": {"model": "x", "card": FACTS.to_json()}})
    assert read_card_facts(tmp_path) == FACTS


def test_the_base_model_is_a_name_of_the_hub(tmp_path: Path) -> None:
    folder = write(tmp_path / "one", "license: mit\nbase_model: /home/me/private\n")
    assert read_card_facts(folder) == CardFacts(license="mit")
    assert read_card_facts(folder, "google-bert/bert-base-uncased").base_model == "google-bert/bert-base-uncased"
    assert read_card_facts(folder, str(folder)).base_model == ""


@pytest.mark.parametrize("front", ["license: [\n", "- a\n- b\n", "license: 5\ntags: {a: b}\n", 'license: "a\\nb"\n'])
def test_damaged_entries_are_ignored(front: str, tmp_path: Path) -> None:
    assert read_card_facts(write(tmp_path / "one", front)) == CardFacts()
    assert read_card_facts(tmp_path / "missing") == CardFacts()
