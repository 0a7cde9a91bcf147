"""OpenVINO files of a model, made from its ONNX file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maskwright.checkpoints.quiet import quiet
from maskwright.core.errors import DeviceError
from maskwright.serving.onnx_graph import Arrays, OnnxPrecision, Run, scores_of

FILES: Mapping[OnnxPrecision, str] = {
    "fp32": "openvino_model.xml",
    "fp16": "openvino_model_fp16.xml",
    "int8": "openvino_model_qint8_quantized.xml",
}
"""Names of optimum-intel and sentence-transformers, in the subdirectory `openvino`. Weights are beside them, `.bin`."""


def convert(source: Path, target: Path, precision: OnnxPrecision) -> None:
    """Write an ONNX file in fp32 for OpenVINO, with weights in fp16 or, one scale per output, in int8.

    Raises DeviceError if it cannot be written, for instance on a full disk.
    """
    import openvino

    with quiet():
        model = openvino.Core().read_model(source)
        if precision == "int8":
            import nncf

            model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
        try:
            openvino.save_model(model, target, compress_to_fp16=precision == "fp16")
        except RuntimeError as error:  # OpenVINO's, for any failed write
            raise DeviceError(
                f"OpenVINO cannot write {target}: {error}", hint="Check the free space of the disk, then export again."
            ) from error


def run(path: Path, head: str) -> Run:
    """Return the function that computes with OpenVINO, in fp32."""
    import openvino

    # By default it computes in bf16 where the CPU can.
    compiled = openvino.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    names = [each.any_name for each in compiled.inputs]

    def compute(inputs: Arrays) -> Any:
        outputs = compiled({name: inputs[name] for name in names})
        return scores_of(head, list(outputs.to_tuple()))

    return compute
