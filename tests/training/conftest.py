from pathlib import Path

import pytest
from toy_models import save_embedder
from toy_runs import TOY, train_toy


@pytest.fixture(scope="session")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of sentence-transformers: first pooling, normalized."""
    folder = tmp_path_factory.mktemp("embedder")
    return save_embedder(train_toy(folder, set=TOY, steps=2).folder, folder / "embedder")
