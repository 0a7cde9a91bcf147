from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny models by name: "bert", "electra", and a fine-tuned one for each kind of task."""
    pytest.importorskip("transformers")
    from maskwright.finetuning.model import fine_tuned
    from tests.finetuning.tiny_tuned import pretrained
    from tests.serving.servers import TASKS

    folder = tmp_path_factory.mktemp("models")
    saved = {name: pretrained(folder / name, name) for name in ("bert", "electra")}
    for name, task in TASKS.items():
        fine_tuned.build(saved["bert"], task, seed=1).save(folder / name)
        saved[name] = folder / name
    return saved
