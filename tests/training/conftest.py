from pathlib import Path

import pytest
from toy_models import save_embedder, saved
from toy_runs import TOY, train_toy

from maskwright.checkpoints.checkpoint import Checkpoint


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A random model of bert/tiny."""
    return saved(tmp_path_factory.mktemp("models") / "bert", "bert/tiny")


@pytest.fixture(scope="session")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of sentence-transformers: first pooling, normalized."""
    folder = tmp_path_factory.mktemp("embedder")
    return save_embedder(train_toy(folder, set=TOY, steps=2).folder, folder / "embedder")
