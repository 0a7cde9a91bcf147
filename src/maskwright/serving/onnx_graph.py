"""ONNX files of a model: export from transformers' class, fp16 and int8 by ONNX Runtime's tools, sessions."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.checkpoints.checkpoint import Checkpoint
from maskwright.checkpoints.quiet import quiet
from maskwright.checkpoints.sentence_folder import SentenceModules
from maskwright.core.storage.files import records_of

OPSET = 20
"""Version of ONNX's operators: the first with GELU as one of them."""
EXTERNAL_DATA_BYTES = 1 << 30
"""Bytes of weights from which they are a file of their own; a single ONNX file holds at most 2 GiB."""

OnnxPrecision = Literal["fp32", "fp16", "int8"]
PRECISIONS: tuple[OnnxPrecision, ...] = get_args(OnnxPrecision)
FILES: Mapping[OnnxPrecision, str] = {"fp32": "model.onnx", "fp16": "model_fp16.onnx", "int8": "model_quantized.onnx"}
"""The names that optimum and transformers.js look for, in the subdirectory `onnx`."""

Arrays = dict[str, NDArray[np.int64]]
Run = Callable[[Arrays], NDArray[np.float32]]
"""From ids, mask and segments, each (B, L) or (B, options, L), to scores; those of an answer's two ends are stacked. Of
the head "embedding", to the vectors."""


class Head(NamedTuple):
    """transformers' Auto class of a head, its outputs in ONNX, and the hub's pipeline for it."""

    auto_class: str
    outputs: tuple[str, ...]
    pipeline: str


HEADS: Mapping[str, Head] = {
    "encoder": Head("AutoModel", ("last_hidden_state",), "feature-extraction"),
    # Of a folder of sentence-transformers, under the name that its exports have.
    "embedding": Head("AutoModel", ("last_hidden_state", "sentence_embedding"), "feature-extraction"),
    "mlm": Head("AutoModelForMaskedLM", ("logits",), "fill-mask"),
    # The hub has no pipeline for it; this one gives the hidden states of the discriminator.
    "rtd": Head("AutoModelForPreTraining", ("logits",), "feature-extraction"),
    "sequence": Head("AutoModelForSequenceClassification", ("logits",), "text-classification"),
    "token": Head("AutoModelForTokenClassification", ("logits",), "token-classification"),
    "span": Head("AutoModelForQuestionAnswering", ("start_logits", "end_logits"), "question-answering"),
    "choice": Head("AutoModelForMultipleChoice", ("logits",), "multiple-choice"),
}


def head_of(loaded: Checkpoint) -> str:
    """Return the head that a model is for, a key of `HEADS`."""
    if loaded.task is not None:
        return loaded.task.head
    if "rtd" in loaded.heads and loaded.family == "electra":  # No other family has a class with this head.
        return "rtd"
    return "mlm" if "mlm" in loaded.heads else "encoder"


class SentenceEmbedding(torch.nn.Module):
    """transformers' encoder with the pooling and normalization of a folder of sentence-transformers."""

    def __init__(self, encoder: Any, modules: SentenceModules) -> None:
        super().__init__()
        self.encoder, self.config = encoder, encoder.config
        self._modules_of_folder, self.dense = modules, modules.dense
        # The inputs of the export are those of the encoder.
        self.forward = self._typed if "token_type_ids" in inspect.signature(encoder.forward).parameters else self._plain

    def _typed(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> dict[str, Tensor]:
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)[0]
        return self._pooled(hidden, attention_mask)

    def _plain(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        return self._pooled(self.encoder(input_ids=input_ids, attention_mask=attention_mask)[0], attention_mask)

    def _pooled(self, hidden: Tensor, mask: Tensor) -> dict[str, Tensor]:
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        pooled = hidden[:, 0]
        if self._modules_of_folder.pooling == "mean":
            pooled = (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)
        if self.dense is not None:
            pooled = self.dense(pooled)
        if self._modules_of_folder.normalize:
            pooled = torch.nn.functional.normalize(pooled)
        kept = pooled[:, : self._modules_of_folder.truncate_dim]
        return {"last_hidden_state": hidden, "sentence_embedding": kept}


def load_transformers(folder: Path, head: str, modules: SentenceModules = SentenceModules()) -> Any:
    """Return transformers' model with a head, for inference; `modules` are those of the head "embedding"."""
    import transformers

    with quiet(), records_of(folder, "config.json or another file for transformers"):
        model = getattr(transformers, HEADS[head].auto_class).from_pretrained(folder).eval()
    if head in ("encoder", "embedding") and hasattr(model, "pooler"):
        model.pooler = None  # Its output is not exported, and a folder without one gets a random one.
    model.config.architectures = [type(model).__name__]
    return SentenceEmbedding(model, modules).eval() if head == "embedding" else model


def write_onnx(model: Any, folder: Path, head: str, target: Path) -> None:
    """Export a model of transformers, loaded from a folder, in fp32: any batch size and length."""
    import onnx
    import transformers

    dims = {"batch_size": 2, "num_choices": 3, "sequence_length": 8}
    if head != "choice":
        del dims["num_choices"]
    with records_of(folder, "a tokenizer file for transformers"):
        names = transformers.AutoTokenizer.from_pretrained(folder).model_input_names
    names = [name for name in names if name in inspect.signature(model.forward).parameters]
    shape = dict(enumerate(torch.export.Dim(name) for name in dims))
    with quiet():
        program = torch.onnx.export(
            model,
            kwargs={name: torch.ones(*dims.values(), dtype=torch.int64) for name in names},
            dynamo=True,
            dynamic_shapes=dict.fromkeys(names, shape),
            input_names=names,
            output_names=HEADS[head].outputs,
            opset_version=OPSET,
            verbose=False,
        )
    assert program is not None
    _save(program.model_proto, target)
    onnx.checker.check_model(target)


def convert(source: Path, target: Path, precision: OnnxPrecision) -> None:
    """Write an fp32 file in fp16, or with int8 weights and activations scaled at run time."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.float16 import convert_float_to_float16

    with quiet():
        if precision == "fp16":
            _save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)
        else:
            # A scale per output: all-MiniLM-L6-v2's lowest cosine with fp32 on 199 sentences of STS-B is 0.990 instead
            # of 0.78 with one scale per matrix (8 bits: 0.990 and 0.95; LOG.md, 2026-11-28).
            # Weights of 7 bits: without VNNI, ONNX Runtime's sums of two products overflow with 8 (ONNX Runtime's
            # documentation, "Quantize ONNX models", on reduce_range), and the file is for any machine.
            quantize_dynamic(source, target, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
            _save(onnx.load(target), target)


def _save(proto: Any, target: Path) -> None:
    import onnx

    is_large = sum(int(weight.ByteSize()) for weight in proto.graph.initializer) >= EXTERNAL_DATA_BYTES
    # transformers.js finds the weights by this name.
    onnx.save(proto, target, save_as_external_data=is_large, location=f"{target.name}_data")


def run_original(model: Any, head: str) -> Run:
    """Return the function that computes with transformers."""
    known = inspect.signature(model.forward).parameters

    def compute(inputs: Arrays) -> NDArray[np.float32]:
        with torch.inference_mode():
            output = model(**{name: torch.from_numpy(array) for name, array in inputs.items() if name in known})
        return scores_of(head, [output[name].numpy() for name in HEADS[head].outputs])

    return compute


def run(path: Path, head: str) -> Run:
    """Return the function that computes with ONNX Runtime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return lambda inputs: scores_of(head, session.run(None, {name: inputs[name] for name in names}))


def scores_of(head: str, outputs: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return what a `Run` returns, from all outputs of a head."""
    if head == "embedding":
        return outputs[1]
    return outputs[0] if len(outputs) == 1 else np.stack(outputs, axis=-1)
