"""Ray as the engine of preparation and as what starts the processes of a run; nodes and processes are killed.

Needs Ray (`pip install 'maskwright[ray]'`).
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from toy_runs import CLEAN, TOY, write_corpus

import maskwright
from maskwright.data.engines import ordered_map, use_engine
from maskwright.data.sources import readers
from maskwright.reporting.metrics import read_rows
from maskwright.reporting.reporter import Reporter
from maskwright.training.runs import checkpoint

ray = pytest.importorskip("ray")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of one node with one CPU, to which tests add others."""
    from ray.cluster_utils import Cluster

    paths = [str(Path(maskwright.__file__).parents[1]), str(Path(__file__).parent)]
    environment = {"env_vars": {"PYTHONPATH": ":".join(paths)}}
    with pytest.MonkeyPatch.context() as patch:
        # The defaults, 30 s and 60 s, are too short on a busy machine.
        patch.setenv("RAY_raylet_start_wait_time_s", "300")
        patch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "600")
        for attempts_left in (2, 1, 0):
            try:
                cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
                break
            except Exception as error:  # Ray raises no narrower class; this wait of 30 s has no setting.
                if not attempts_left or "timed out during startup" not in str(error):
                    raise
        ray.init(address=cluster.address, log_to_driver=False, runtime_env=environment)
        yield cluster
        ray.shutdown()
        cluster.shutdown()


def node_of(number: int) -> tuple[int, str]:
    """Return the number and the node on which this runs."""
    time.sleep(0.1)
    return number, ray.get_runtime_context().get_node_id()


def test_calls_of_a_killed_node_are_repeated(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=1)
    results = []
    with use_engine("ray"):
        for number, name in ordered_map(node_of, range(60)):
            results.append((number, name))
            if node is not None and name == node.node_id:
                cluster.remove_node(node, allow_graceful=False)
                node = None
    assert node is None
    assert [number for number, _ in results] == list(range(60))
    assert len({name for _, name in results}) == 2
    assert len({name for _, name in results[-10:]}) == 1


class KillingNode(Reporter):
    """Kills a node of a cluster when a third of the text is cleaned."""

    def __init__(self, cluster: Any) -> None:
        self._cluster, self._node = cluster, cluster.add_node(num_cpus=1)
        self.killed_at = 0.0

    def stage(self, name: str, done: int, total: int | None) -> None:
        if name.startswith("reading and cleaning") and total and 3 * done > total and not self.killed_at:
            self._cluster.remove_node(self._node, allow_graceful=False)
            self.killed_at = done / total


def test_text_prepared_by_a_cluster_that_loses_a_node_has_the_same_bytes(tmp_path, cluster, monkeypatch):
    monkeypatch.setattr(readers, "BLOCK_BYTES", 2000)
    corpus = write_corpus(tmp_path / "corpus.txt", 200)
    settings: dict[str, Any] = {"recipe": "bert/tiny", "set": ["tokenizer.vocab_size=300"], "clean": CLEAN}
    local = maskwright.prepare(corpus, out=tmp_path / "local", workers=1, reporter=Reporter(), **settings)
    killing = KillingNode(cluster)
    shared = maskwright.prepare(corpus, out=tmp_path / "cluster", engine="ray", reporter=killing, **settings)
    assert 1 / 3 < killing.killed_at < 1
    assert shared.digest == local.digest


def _pretrain(arguments: dict[str, Any]) -> None:
    """Train; rank 0 is killed once, right after its checkpoint of step 7, if the folder has no file `killed` yet."""
    killed = Path(arguments["out"]).parent / "killed"
    save = checkpoint.save

    def save_then_die(folder: Path, at: int, *rest: Any) -> Path:
        written = save(folder, at, *rest)
        if at == 7 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return written

    with patch.object(checkpoint, "save", save_then_die):
        maskwright.pretrain(**arguments)


def test_ray_train_has_the_losses_of_one_process_though_a_worker_is_killed(tmp_path: Path, cluster: Any) -> None:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    cluster.add_node(num_cpus=2)
    shared = {
        "corpus": str(write_corpus(tmp_path / "corpus.txt")),
        "recipe": "bert/tiny",
        "steps": 20,
        "set": [*TOY, "encoder.hidden_dropout=0", "encoder.attention_dropout=0"],
        "clean": CLEAN,
        "device": "cpu",
        "workers": 1,
        "checkpoint_minutes": 0.0,
        "cache": str(tmp_path / "cache"),
    }
    maskwright.pretrain(**{**shared, "out": str(tmp_path / "one"), "reporter": Reporter()})
    TorchTrainer(
        _pretrain,
        train_loop_config={**shared, "out": str(tmp_path / "two")},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path / "ray"), failure_config=FailureConfig(max_failures=1)),
    ).fit()
    assert (tmp_path / "killed").exists()
    rows = [read_rows(tmp_path / name / "metrics.jsonl") for name in ("one", "two")]
    one, two = ({row["step"]: row["loss"] for row in each if "loss" in row} for each in rows)
    assert one == pytest.approx(two, rel=1e-5)
    assert max(one) == 20
