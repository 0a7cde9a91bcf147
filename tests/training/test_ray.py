"""Ray Train starts the processes of a run instead of torchrun; needs Ray (`pip install 'ray[train]'`)."""

from pathlib import Path
from typing import Any

import pytest
from toy_runs import CLEAN, TOY, write_corpus

import maskwright
from maskwright.training.metrics import read_rows

ray = pytest.importorskip("ray")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def _pretrain(arguments: dict[str, Any]) -> None:
    maskwright.pretrain(**arguments)


def test_two_workers_of_ray_train_have_the_losses_of_one_process(tmp_path: Path) -> None:
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    shared = {
        "corpus": str(write_corpus(tmp_path / "corpus.txt")),
        "recipe": "bert/tiny",
        "steps": 20,
        "set": [*TOY, "encoder.hidden_dropout=0", "encoder.attention_dropout=0"],
        "clean": CLEAN,
        "device": "cpu",
        "workers": 1,
        "cache": str(tmp_path / "cache"),
    }
    _pretrain({**shared, "out": str(tmp_path / "one")})
    paths = [str(Path(maskwright.__file__).parents[1]), str(Path(__file__).parent)]
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": ":".join(paths)}})
    try:
        TorchTrainer(
            _pretrain,
            train_loop_config={**shared, "out": str(tmp_path / "two")},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=str(tmp_path / "ray")),
        ).fit()
    finally:
        ray.shutdown()
    rows = [read_rows(tmp_path / name / "metrics.jsonl") for name in ("one", "two")]
    one, two = ([row["loss"] for row in each if "loss" in row] for each in rows)
    assert one == pytest.approx(two, rel=1e-5)
    assert one
