"""Models kept along training: at equal shares of the budget, loadable, the same after an interruption."""

from functools import partial
from pathlib import Path

import pytest
from toy_runs import TOY, Train, killed_after, train_toy

import maskwright
from maskwright.core.errors import RecipeError


@pytest.fixture
def train(tmp_path: Path) -> Train:
    return partial(train_toy, tmp_path, checkpoint_minutes=0.0, keep=5)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_toy(tmp_path_factory.mktemp("kept"), keep=5).folder


def kept(folder: Path) -> dict[str, bytes]:
    names = [path.relative_to(folder) for path in folder.glob("kept/**/*") if path.is_file()]
    return {name.as_posix(): (folder / name).read_bytes() for name in names}


def steps_of(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in (folder / "kept").iterdir())


@pytest.mark.parametrize("step", [4, 5, 9])  # before, at and after a kept one
def test_a_resumed_run_keeps_the_same_models(train: Train, undisturbed: Path, tmp_path: Path, step: int) -> None:
    assert steps_of(undisturbed) == [3, 5, 8, 10, 12]
    last = undisturbed / "kept/step-000000012"
    for name in ("config.json", "model.safetensors", "tokenizer.json", "recipe.json"):
        assert (last / name).read_bytes() == (undisturbed / name).read_bytes()
    with killed_after(step):
        train("killed")
    (tmp_path / "killed/kept/step-000000011").mkdir(parents=True)  # As under a budget of time, before the kill.
    resumed = train("killed", checkpoint_minutes=1.0)
    assert steps_of(resumed.folder) == [3, 5, 8, 10, 12]
    assert kept(resumed.folder) == kept(undisturbed)


def test_kept_models_load_like_the_run(train: Train) -> None:
    run = train(keep=2, checkpoint_minutes=1.0)
    assert steps_of(run.folder) == [6, 12]
    filled = [
        maskwright.fill_mask(run.folder / name, "the [MASK] watches the sea.") for name in ("", "kept/step-000000012")
    ]
    assert filled[0] == filled[1]
    assert maskwright.embed(run.folder / "kept/step-000000006", ["the sea"]).shape == (1, 32)


def test_a_generator_is_kept_too(train: Train) -> None:
    run = train(recipe="electra/tiny", keep=1, steps=3, set=TOY)
    folder = run.folder / "kept/step-000000003"
    assert maskwright.detect(folder, "the cat watches the sea.")
    assert maskwright.fill_mask(folder / "generator", "the [MASK] watches the sea.")


def test_a_number_below_zero_is_refused(train: Train) -> None:
    with pytest.raises(RecipeError, match=r"--keep is -1\. Allowed: a number of models from 0 on"):
        train(keep=-1)
