"""Missing folders are reported with the nearest name before the hub is asked."""

from pathlib import Path

import pytest

from maskwright.checkpoints import location
from maskwright.checkpoints.location import locate
from maskwright.core.errors import ConversionError


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("quickstart", "others"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.json").write_text("{}")
    return tmp_path / "runs"


@pytest.mark.parametrize("name", ["runs/quickstat", Path("runs/quickstat")])
def test_a_misspelled_folder_is_not_requested_from_the_hub(name, runs, monkeypatch):
    monkeypatch.setattr(location, "_from_hub", lambda name: pytest.fail(f"{name} was requested from the hub"))
    with pytest.raises(ConversionError, match=r"no folder 'runs/quickstat'.*others.*Did you mean 'runs/quickstart'\?"):
        locate(name)
    monkeypatch.chdir(runs)
    with pytest.raises(ConversionError, match="Did you mean 'quickstart'"):
        locate("quick_start")


def test_folders_are_found_and_hub_names_go_to_the_hub(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert locate("runs/quickstart") == Path("runs/quickstart")
    monkeypatch.setattr(location, "_from_hub", lambda name: Path("fetched") / name)
    assert locate("owner/quickstat") == Path("fetched/owner/quickstat")


def test_a_run_without_a_model_is_an_error(runs: Path) -> None:
    (runs / "quickstart" / "config.json").rename(runs / "quickstart" / "run.json")
    with pytest.raises(ConversionError, match="has not saved a model yet"):
        locate("runs/quickstart")
