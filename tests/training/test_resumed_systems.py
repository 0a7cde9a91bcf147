"""Whole runs of the systems that differ most from BERT, killed and resumed: each holds state that others do not."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_pretrain import CLEAN, die_after
from toy_runs import TOY, write_corpus

from maskwright.training.pretrain import Run, pretrain
from maskwright.training.reporting import Silent

SUBJECTS = ("小明", "老师", "我的妹妹", "北京大学", "船长", "王小明")
VERBS = ("喜欢", "看见", "研究", "记得")
OBJECTS = ("人工智能", "上海", "语言模型", "红色的房子", "长城", "大海")
SYNONYMS = "喜欢 看见 研究 记得\n上海 长城 大海\n老师 船长 小明\n"
STEPS = 12


def write_chinese(path: Path) -> Path:
    """Write documents of simple Chinese sentences, with names of people and places."""
    draw = np.random.default_rng(0)
    texts = []
    for _ in range(40):
        chosen = draw.integers(0, (6, 4, 6), (int(draw.integers(4, 10)), 3))
        texts.append("".join(f"{SUBJECTS[a]}{VERBS[b]}{OBJECTS[c]}。" for a, b, c in chosen))
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("recipe", "chinese", "kills"),
    [
        ("albert/tiny", False, (6,)),  # LAMB, unigram pieces; the length changes there.
        ("spanbert/tiny", False, (5,)),  # Spans, a head with anchors.
        ("macbert/tiny", True, (7,)),  # A segmenter's words, a table of similar words.
        ("ernie/tiny", True, (4, 8)),  # Both ends of a stage of masking.
    ],
)
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(
    recipe: str, chinese: bool, kills: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = (*TOY, "training.batch_sequences=24")
    if recipe.startswith("macbert"):
        (tmp_path / "synonyms.txt").write_text(SYNONYMS, encoding="utf-8")
        overrides = (*overrides, f"replacement.table.source={tmp_path / 'synonyms.txt'}")
    corpus = (write_chinese if chinese else write_corpus)(tmp_path / "corpus.txt")

    def train(out: str) -> Run:
        settings: dict[str, Any] = {"clean": CLEAN, "workers": 1, "cache": tmp_path / "cache", "reporter": Silent()}
        return pretrain(
            corpus,
            out=tmp_path / out,
            recipe=recipe,
            steps=STEPS,
            set=overrides,
            checkpoint_minutes=0.0,
            **settings,
        )

    peace = train("peace")
    assert peace.epochs > 1
    for kill in kills:
        with monkeypatch.context() as patch:
            die_after(kill, patch)
            with pytest.raises(KeyboardInterrupt):
                train("killed")
    resumed = train("killed")
    for name in ("metrics.jsonl", "model.safetensors", "config.json", "recipe.json"):
        assert (peace.folder / name).read_bytes() == (resumed.folder / name).read_bytes(), name
    assert resumed.held_out == peace.held_out
    if recipe.startswith("ernie"):  # There was something to hide in every stage.
        levels = json.loads((resumed.folder / "data_card.json").read_text(encoding="utf-8"))["levels"]
        assert all(levels[level]["units"] for level in ("phrase", "entity"))
