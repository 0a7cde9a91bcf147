"""Errors of exports to OpenVINO."""

import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from maskwright.core.errors import DeviceError
from maskwright.serving.openvino_graph import convert


def test_failed_write_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openvino = MagicMock()
    openvino.save_model.side_effect = RuntimeError("basic_ios::clear: iostream error")  # of a full disk
    monkeypatch.setitem(sys.modules, "openvino", openvino)
    with pytest.raises(DeviceError, match=r"model\.xml.*iostream error.*free space"):
        convert(tmp_path / "model.onnx", tmp_path / "model.xml", "fp32")
