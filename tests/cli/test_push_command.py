"""Uploads happen only when asked, of exported folders only."""

import io
import sys

import huggingface_hub
import pytest

import maskwright
from maskwright.core.errors import MaskwrightError
from tests.finetuning.tiny_tuned import pretrained


@pytest.fixture
def uploads(monkeypatch):
    """Replace the client's calls; return what they receive."""
    received = []

    class Client:
        def create_repo(self, repo, *, private, exist_ok):
            received.append((repo, private, exist_ok))

        def upload_folder(self, *, repo_id, folder_path):
            received.append((repo_id, folder_path))
            return "https://hub.example/commit"

    monkeypatch.setattr(huggingface_hub, "HfApi", Client)
    return received


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    source = tmp_path_factory.mktemp("bert")
    out = source.with_name(f"{source.name}-hub")
    maskwright.export(pretrained(source, "bert"), to="hub", out=out)
    return out


def test_push_uploads_after_a_confirmation_only(run, folder, uploads, monkeypatch):
    def answer(text):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))

    answer("n\n")
    code, out, _ = run("push", folder, "me/mine", "--private")
    assert (code, uploads) == (1, [])
    assert "to me/mine (private if new)?" in out
    assert "model.safetensors" in out
    answer("y\n")
    assert run("push", folder, "me/mine")[0] == 0
    assert uploads == [("me/mine", False, True), ("me/mine", folder)]
    code, _, err = run("push", folder, "me/mine", "--yes", "--private")
    assert (code, uploads[2]) == (0, ("me/mine", True, True))
    assert "https://hub.example/commit" in err


def test_only_exported_folders_are_pushed(folder, tmp_path, uploads):
    with pytest.raises(MaskwrightError, match="is not an exported model"):
        maskwright.push(tmp_path, "me/mine")
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(MaskwrightError, match="is not an exported model"):
        maskwright.push(tmp_path, "me/mine")
    assert uploads == []


def test_errors_of_the_hub_are_explained(folder, uploads, monkeypatch):
    def refuse(self, *arguments, **options):
        raise OSError("401 Client Error\nRequest ID: 1")

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", refuse)
    with pytest.raises(MaskwrightError, match=r"cannot upload to me/mine: 401 Client Error\. .*hf auth login"):
        maskwright.push(folder, "me/mine")
