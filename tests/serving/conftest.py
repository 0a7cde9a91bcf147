"""Models that the tests of the server share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return tiny models by name: "bert", "electra", and fine-tuned ones."""
    pytest.importorskip("transformers")
    from tests.serving.servers import write_models

    return write_models(tmp_path_factory.mktemp("models"))
