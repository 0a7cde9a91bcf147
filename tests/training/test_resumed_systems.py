"""Whole runs of every system, killed and resumed: each holds state that others do not."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_every_recipe import RECIPES
from toy_runs import TOY, Train, assert_same_files, killed_after, train_toy, write_corpus

from maskwright.recipes.catalog import get
from maskwright.recipes.recipe import Recipe
from maskwright.training.pretrain import RunResult

SUBJECTS = ("小明", "老师", "我的妹妹", "北京大学", "船长", "王小明")
VERBS = ("喜欢", "看见", "研究", "记得")
OBJECTS = ("人工智能", "上海", "语言模型", "红色的房子", "长城", "大海")
SYNONYMS = "喜欢 看见 研究 记得\n上海 长城 大海\n老师 船长 小明\n"


def write_chinese(path: Path) -> Path:
    """Write documents of simple Chinese sentences, with names of people and places."""
    draw = np.random.default_rng(0)
    texts = []
    for _ in range(40):
        chosen = draw.integers(0, (6, 4, 6), (int(draw.integers(4, 10)), 3))
        texts.append("".join(f"{SUBJECTS[a]}{VERBS[b]}{OBJECTS[c]}。" for a, b, c in chosen))
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resumed")


@pytest.fixture(scope="module")
def train(shared: Path) -> Train:
    """Train a toy of a recipe on text that has what its masking looks for."""
    english, chinese = write_corpus(shared / "english.txt"), write_chinese(shared / "chinese.txt")
    (shared / "synonyms.txt").write_text(SYNONYMS, encoding="utf-8")

    def run(recipe: Recipe, out: Path, **changes: Any) -> RunResult:
        corpus = english if recipe.words.segmenter == "none" else chinese
        settings = [*TOY, "training.batch_sequences=24"]
        if recipe.tokenizer.kind == "byte_bpe":
            settings.append("tokenizer.vocab_size=400")
        if recipe.replacement.similar_words is not None:
            settings.append(f"replacement.table.source={shared / 'synonyms.txt'}")
        return train_toy(
            shared,
            out,
            corpus=corpus,
            recipe=recipe.name,
            set=[setting for setting in settings if recipe.teacher is None or "vocab_size" not in setting],
            **changes,
        )

    return run


# As those of DistilBERT, and of BERT-wwm with the tokenizer of RoBERTa.
LIKE_OTHERS = ("distilroberta/tiny", "roberta-wwm/tiny")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LIKE_OTHERS)) for name in RECIPES]
)
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(name, train, shared, tmp_path):
    recipe = get(name)
    changes: dict[str, Any] = {}
    if recipe.teacher is not None:
        taught = get("roberta/tiny" if recipe.family == "roberta" else "bert/tiny")
        changes["teacher"] = train(taught, shared / taught.name.replace("/", "-")).folder
    peace = train(recipe, tmp_path / "peace", **changes)
    assert peace.epochs > 1
    # Where the length changes, or at both ends of a stage of masking; BERT also after the first step and near the end.
    kills = (4, 8) if len(recipe.masking.stages) > 1 else (1, 6, 11) if name == "bert/tiny" else (6,)
    for kill in kills:
        with killed_after(kill):
            train(recipe, tmp_path / "killed", **changes, checkpoint_minutes=0.0)
    resumed = train(recipe, tmp_path / "killed", **changes)
    models = [path.relative_to(peace.folder) for path in peace.folder.rglob("model.safetensors")]
    assert len(models) == 1 + (recipe.generator is not None)
    assert_same_files(peace, resumed, "config.json", "recipe.json", *map(str, models))
    assert resumed.held_out == peace.held_out
    # There was something to hide on every level.
    levels = json.loads((resumed.folder / "data_card.json").read_text(encoding="utf-8"))["levels"]
    assert recipe.masking.span_kinds <= levels.keys()
    assert all(levels[level]["units"] for level in recipe.masking.span_kinds)


CHOICES = {
    "muon": ["training.optimizer.kind=muon"],
    "stable part": ["training.schedule=warmup_stable_decay", "training.decay_share=0.4"],
    "stable_adamw": ["training.optimizer.kind=stable_adamw", "training.clip_norm=0"],
}


@pytest.mark.parametrize("choice", CHOICES)
def test_choices_of_no_system_resume_bit_for_bit(choice: str, shared: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"set": [*TOY, *CHOICES[choice]]}
    peace = train_toy(shared, tmp_path / "peace", **changes)
    with killed_after(7):
        train_toy(shared, tmp_path / "killed", **changes, checkpoint_minutes=0.0)
    resumed = train_toy(shared, tmp_path / "killed", **changes)
    assert_same_files(peace, resumed, "recipe.json")
    assert resumed.held_out == peace.held_out
