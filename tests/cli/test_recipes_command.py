"""`maskwright recipes`: what it prints for people and for programs."""

import json

import pytest

from maskwright.core.text.amounts import share
from maskwright.recipes import catalog

SYSTEMS = [name for name in catalog.names() if name.endswith("/base")]
"""The base size of every system."""


def test_recipes_lists_every_recipe_also_for_programs(run):
    code, out, _ = run("recipes")
    assert code == 0
    assert all(name in out for name in (*catalog.names(), "109M"))
    _, out, err = run("recipes", "--json")
    listed = {row["name"]: row for row in json.loads(out)}
    assert tuple(listed) == catalog.names()
    assert listed["bert/base"]["parameters"] == 109_482_240
    assert err == ""


@pytest.mark.parametrize("verb", ["show", "size"])
def test_json_before_a_verb_is_refused_and_not_forgotten(run, verb):
    code, out, err = run("recipes", "--json", verb, "bert/base")
    assert (code, out) == (2, "")
    assert f"`maskwright recipes {verb} ... --json`" in err


def test_recipes_show_json_is_a_recipe_file(run, tmp_path):
    _, out, _ = run("recipes", "show", "roberta/base", "--set", "masking.rate=0.3", "--json")
    file = tmp_path / "mine.json"
    file.write_text(out)
    assert catalog.resolve(str(file)) == catalog.resolve("roberta/base", ["masking.rate=0.3"])
    code, out, _ = run("recipes", "show", str(file))
    assert code == 0
    assert "30 %" in out


def test_recipes_diff_prints_what_differs(run):
    code, out, _ = run("recipes", "diff", "bert/base", "bert/large")
    assert code == 0
    assert "layers" in out
    assert "masking" not in out
    assert "masking" in run("recipes", "diff", "bert/base", "bert/large", "--all")[1]
    code, out, err = run("recipes", "diff", "bert/base", "bert/base")
    assert (code, out) == (0, "")
    assert "are identical" in err


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_is_shown_sized_and_set_against_bert(run, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # A narrow terminal folds long names.
    code, out, _ = run("recipes", "show", name)
    assert code == 0
    assert all(part in out for part in (name, "masking.rate", share(catalog.get(name).masking.rate)))
    code, out, _ = run("recipes", "size", name)
    assert code == 0
    assert all(part in out for part in ("pretraining, total", "FLOPs"))
    code, out, _ = run("recipes", "diff", "bert/base", name, "--json")
    assert code == 0
    differing = {field["path"] for field in json.loads(out)["fields"]}
    left, right = (catalog.get(each).model_dump() for each in ("bert/base", name))
    # What differs between the recipes is shown, under its own name or that of its part, and nothing else is.
    axes = {axis for axis in left if left[axis] != right[axis]} - {"name", "summary", "paper"}
    assert {path.partition(".")[0] for path in differing} == axes
    code, out, _ = run("recipes", "diff", "bert/base", name)
    assert code == 0
    assert bool(out) == bool(axes)
    assert not out or name in out


def test_recipes_size_of_bert_base_is_as_published(run):
    _, out, _ = run("recipes", "size", "bert/base", "--json")
    counted = json.loads(out)
    assert (counted["encoder_and_pooler"], counted["pretraining"]) == (109_482_240, 110_106_428)
    assert counted["parts"]["attention"] == 28_366_848


def test_recipes_size_sets_two_recipes_side_by_side(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    _, out, err = run("recipes", "size", "bert/large", "albert/large")
    rows = {line.split("  ")[0].strip(): line.split()[-3:] for line in out.splitlines() if line.strip()}
    assert rows["encoder + pooler"] == ["335,141,888", "17,683,968", "19"]
    # 30,000 x 128 + 128 x 1,024; BERT's embeddings are as wide as its layers.
    assert rows["V x E + E x H (V x H if E is H)"] == ["31,254,528", "3,971,072", "7.87"]
    assert rows["V x H"][:2] == ["31,254,528", "30,720,000"]
    assert rows["embedding projection"] == ["–", "132,096", "–"]
    assert "albert/large has 19.0 times fewer parameters than bert/large" in err
    _, out, _ = run("recipes", "size", "albert/base", "albert/base", "--set", "encoder.embedding_size=768", "--json")
    first, second = json.loads(out)
    assert first["parts"]["word embeddings"] == 30_000 * 128
    assert second["parts"]["word embeddings"] == 30_000 * 768
    _, out, _ = run("recipes", "size", "albert/base")
    assert "3,938,304" in out
    (row,) = (line.split() for line in out.splitlines() if line.split()[:4] == ["V", "x", "H", "23,040,000"])
    assert row[4] == "5.85"


def test_recipes_diff_of_two_with_one_name_shows_the_arguments(run, tmp_path):
    _, out, _ = run("recipes", "show", "roberta/mini", "--set", "masking.rate=0.3", "--json")
    file = tmp_path / "law.json"
    file.write_text(out)
    _, out, _ = run("recipes", "diff", "roberta/mini", str(file), "--json")
    compared = json.loads(out)
    assert (compared["left"], compared["right"]) == ("roberta/mini", str(file))
    actual = [(field["path"], field["left"], field["right"]) for field in compared["fields"]]
    assert actual == [("masking.rate", "15 %", "30 %")]
    _, out, _ = run("recipes", "diff", "roberta/mini", "roberta/mini", "--set", "masking.rate=0.3")
    assert "roberta/mini --set masking.rate=0.3" in out
