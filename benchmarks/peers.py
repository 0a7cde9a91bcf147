"""Contenders of other libraries, as their users write them."""

import csv
import os
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_ELECTRA_WEIGHT = 50.0  # lambda of Clark et al. 2020, section 3.2
_RATE, _CLIP = 1e-4, 1.0
_POOL = 50  # batches that transformers sorts by length at a time (mega-batches)
_MASK, _IGNORED = 4, -100


def _use_onednn() -> None:
    """Compute fp32 matmuls through oneDNN: the one line that users who know their machine add."""
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]


def _load(folder: str | Path, kind: str, dropout: float = 0.0, **changes: Any) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    config = transformers.AutoConfig.from_pretrained(folder)
    rates = {name: dropout for name in ("hidden_dropout_prob", "attention_probs_dropout_prob") if hasattr(config, name)}
    return getattr(transformers, kind).from_pretrained(folder, **rates, **changes)


class TransformersStep:
    """The plain training step: forward, backward, clip, fused AdamW, zero_grad.

    Args:
        model: A folder to take configuration, weights and tokenizer from.
        corpus: A file with blank lines between documents.
        batch, steps, length: Of a run; texts are cut at `length` tokens and padded to the longest of their batch.
        dropout: Of hidden values and attention probabilities.
        onednn: Whether fp32 matmuls go through oneDNN.
        bf16: Whether to compute under autocast.
        grouped: Whether batches hold texts of like length (`train_sampling_strategy="group_by_length"`).
        compiled: Whether to use `torch.compile`.
        electra: Whether to train generator and discriminator with shared embeddings.
    """

    def __init__(
        self,
        model: str,
        corpus: str,
        batch: int,
        steps: int,
        length: int = 128,
        dropout: float = 0.0,
        device: str = "cpu",
        *,
        onednn: bool = False,
        bf16: bool = False,
        grouped: bool = False,
        compiled: bool = False,
        electra: bool = False,
    ) -> None:
        from transformers import AutoTokenizer

        if onednn:
            _use_onednn()
        self._device, self._bf16 = device, bf16
        tokenizer = AutoTokenizer.from_pretrained(model)
        documents = Path(corpus).read_text(encoding="utf-8").strip().split("\n\n")[: _POOL * batch]
        encoded = tokenizer(documents, truncation=True, max_length=length)["input_ids"]
        self._batches = _batches(encoded, len(tokenizer), batch, steps, grouped=grouped)
        self._electra = electra
        self._model = (_Electra(model, dropout) if electra else _load(model, "AutoModelForMaskedLM", dropout)).train()
        self._model.to(device)
        self._forward: Callable[..., Any] = torch.compile(self._model) if compiled else self._model
        self._optimizer = _optimizer(self._model)

    def run(self) -> dict[str, Any]:
        """Take one step on each batch."""
        segments = getattr(self._model, "config", None) is None or hasattr(self._model.config, "type_vocab_size")
        kept = [
            *("input_ids", "attention_mask", "labels"),
            *(["token_type_ids"] if segments else []),
            *(["original"] if self._electra else []),
        ]
        tokens = slots = 0
        begun = time.perf_counter()
        for batch in self._batches:
            inputs = {name: batch[name].to(self._device, non_blocking=True) for name in kept}
            with torch.autocast(self._device, torch.bfloat16, enabled=self._bf16):
                loss = self._forward(**inputs).loss
            loss.backward()
            nn.utils.clip_grad_norm_(self._model.parameters(), _CLIP)
            self._optimizer.step()
            self._optimizer.zero_grad()
            tokens, slots = tokens + int(batch["attention_mask"].sum()), slots + batch["input_ids"].numel()
        if self._device != "cpu":
            torch.cuda.synchronize()
        return {"work": tokens, "seconds": time.perf_counter() - begun, "fill": tokens / slots}


class _Electra(nn.Module):
    """transformers' generator and discriminator with shared embeddings, and their joint loss."""

    def __init__(self, folder: str, dropout: float) -> None:
        super().__init__()
        self.generator = _load(Path(folder) / "generator", "ElectraForMaskedLM", dropout)
        self.discriminator = _load(folder, "ElectraForPreTraining", dropout)
        self.generator.electra.embeddings = self.discriminator.electra.embeddings
        self.generator.generator_lm_head.weight = self.discriminator.electra.embeddings.word_embeddings.weight

    def forward(self, input_ids: Tensor, labels: Tensor, original: Tensor, **known: Tensor) -> Any:
        from transformers.modeling_outputs import MaskedLMOutput

        generated = self.generator(input_ids=input_ids, labels=labels, **known)
        selected = labels != _IGNORED
        filled = original.clone()
        with torch.no_grad():
            filled[selected] = torch.multinomial(generated.logits[selected].float().softmax(-1), 1).squeeze(1)
        replaced = (filled != original).long()
        detected = self.discriminator(input_ids=filled, labels=replaced, **known)
        return MaskedLMOutput(loss=generated.loss + _ELECTRA_WEIGHT * detected.loss)


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return AdamW as `Trainer` sets it up: fused, biases and LayerNorms not decayed."""
    decayed, plain = list[nn.Parameter](), list[nn.Parameter]()
    for name, parameter in model.named_parameters():
        (plain if name.endswith("bias") or "layernorm" in name.lower() else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=_RATE, fused=True)


def _batches(
    texts: Sequence[list[int]], vocabulary: int, batch: int, steps: int, *, grouped: bool, seed: int = 0
) -> list[dict[str, Tensor]]:
    """Form batches at random, or of like length, taken at even distances so that all lengths occur."""
    generator = np.random.default_rng([seed, 6])
    order = [texts[number] for number in generator.permutation(len(texts))]
    if grouped:
        order.sort(key=lambda text: -len(text))
        pool = [order[first : first + batch] for first in range(0, len(order) - batch + 1, batch)]
        chosen = [pool[int((step + 0.5) * len(pool) / steps)] for step in range(steps)]
    else:
        chosen = [[order[(step * batch + row) % len(order)] for row in range(batch)] for step in range(steps)]
    return [masked_batch(each, vocabulary, generator) for each in chosen]


def masked_batch(texts: Sequence[list[int]], vocabulary: int, generator: np.random.Generator) -> dict[str, Tensor]:
    """Pad texts to the longest and mask 15 % of their tokens, 80/10/10, as `DataCollatorForLanguageModeling` does."""
    original = np.zeros((len(texts), max(map(len, texts))), dtype=np.int64)
    attention = np.zeros_like(original)
    for row, text in enumerate(texts):
        original[row, : len(text)], attention[row, : len(text)] = text, 1
    selected = (original > _MASK) & (generator.random(original.shape) < 0.15)
    action = generator.random(original.shape)
    ids = np.where(selected & (action < 0.8), _MASK, original)
    ids = np.where(selected & (action >= 0.9), generator.integers(_MASK + 1, vocabulary, original.shape), ids)
    labels = np.where(selected, original, _IGNORED)
    arrays = {"input_ids": ids, "attention_mask": attention, "labels": labels, "original": original}
    return {name: torch.from_numpy(array) for name, array in arrays.items()} | {
        "token_type_ids": torch.zeros(ids.shape, dtype=torch.long)
    }


class Inference:
    """Masks filled or mean vectors computed by transformers, ONNX Runtime or OpenVINO, tokenizing included.

    Args:
        model: A model folder.
        task: "fill-mask" (the head at every position, as transformers' users compute it) or "embed".
        texts: Of a call.
        calls: Per run.
        engine: "torch", "onnxruntime" or "openvino".
        precision: "fp32", "bf16" or "int8" (dynamic quantization).
        onednn: Whether fp32 matmuls go through oneDNN.
        scratch: For exported models.
    """

    def __init__(
        self,
        model: str,
        task: str,
        texts: Sequence[str],
        calls: int,
        scratch: str,
        engine: str = "torch",
        precision: str = "fp32",
        *,
        onednn: bool = False,
    ) -> None:
        from transformers import AutoTokenizer

        if onednn:
            _use_onednn()
        self._tokenizer = AutoTokenizer.from_pretrained(model)
        self._texts, self._calls, self._task = list(texts), calls, task
        kind = "AutoModelForMaskedLM" if task == "fill-mask" else "AutoModel"
        loaded = _load(model, kind, dtype=torch.bfloat16 if precision == "bf16" else torch.float32).eval()
        self._compute = _engine(engine, precision, _Output(loaded), Path(scratch))
        self._call()

    def _call(self) -> Any:
        inputs = self._tokenizer(self._texts, return_tensors="pt", padding=True)
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        with torch.inference_mode():
            output = self._compute(ids, mask).float()
            if self._task == "fill-mask":
                return output[ids == self._tokenizer.mask_token_id].softmax(-1).topk(5)
            return (output * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    def run(self) -> dict[str, Any]:
        """Call it a few times."""
        begun = time.perf_counter()
        for _ in range(self._calls):
            self._call()
        seconds = time.perf_counter() - begun
        return {"work": self._calls, "seconds": seconds, "ms": 1e3 * seconds / self._calls}


class _Output(nn.Module):
    """A model that returns its first output as a plain tensor, which exporters need."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        output: Tensor = self.model(input_ids=ids, attention_mask=mask)[0]
        return output


def _engine(engine: str, precision: str, model: _Output, scratch: Path) -> Callable[[Tensor, Tensor], Tensor]:
    if engine == "torch":
        return _quantized(model) if precision == "int8" else model
    scratch.mkdir(parents=True, exist_ok=True)
    example = (torch.ones(2, 16, dtype=torch.long), torch.ones(2, 16, dtype=torch.long))
    if engine == "openvino":
        import openvino

        converted = openvino.convert_model(model, example_input=example)
        if precision == "int8":
            import nncf

            converted = nncf.compress_weights(converted)
        compiled = openvino.compile_model(converted, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        return lambda ids, mask: torch.from_numpy(compiled([ids.numpy(), mask.numpy()])[0])
    import onnxruntime

    path = scratch / "model.onnx"
    axes = {0: "batch", 1: "length"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            example,
            str(path),
            input_names=["ids", "mask"],
            output_names=["output"],
            dynamic_axes={"ids": axes, "mask": axes, "output": axes},
            dynamo=False,
        )
    if precision == "int8":
        from onnxruntime.quantization import quantize_dynamic

        quantize_dynamic(path, scratch / "int8.onnx")
        path = scratch / "int8.onnx"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda ids, mask: torch.from_numpy(session.run(None, {"ids": ids.numpy(), "mask": mask.numpy()})[0])


def _quantized(model: nn.Module) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces its successor each time
        return torch.ao.quantization.quantize_dynamic(  # type: ignore[no-untyped-call]
            model, {nn.Linear}, dtype=torch.qint8
        )


class TrainerFinetune:
    """`Trainer` as run_glue.py uses it: read, tokenize, train one epoch, score the development set, save.

    Args:
        grouped: `train_sampling_strategy="group_by_length"`.
        onednn: Whether fp32 matmuls go through oneDNN.
    """

    def __init__(
        self, model: str, train: str, dev: str, out: str, *, grouped: bool = False, onednn: bool = False
    ) -> None:
        if onednn:
            _use_onednn()
        self._model, self._train, self._dev, self._out, self._grouped = model, train, dev, Path(out), grouped

    def run(self) -> dict[str, Any]:
        """Fine-tune from the same weights."""
        from transformers import (
            AutoTokenizer,
            DataCollatorWithPadding,
            PrinterCallback,
            Trainer,
            TrainingArguments,
        )

        shutil.rmtree(self._out, ignore_errors=True)
        begun = time.perf_counter()
        tokenizer = AutoTokenizer.from_pretrained(self._model)
        train, dev = (_labeled(path, tokenizer) for path in (self._train, self._dev))
        arguments = TrainingArguments(
            output_dir=str(self._out),
            num_train_epochs=1,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=32,
            learning_rate=5e-5,
            weight_decay=0.01,
            warmup_steps=0.1,
            train_sampling_strategy="group_by_length" if self._grouped else "random",
            use_cpu=True,
            dataloader_pin_memory=False,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        model = _load(self._model, "AutoModelForSequenceClassification", 0.1, num_labels=2)
        collator = DataCollatorWithPadding(tokenizer)
        trainer = Trainer(model=model, args=arguments, train_dataset=train, eval_dataset=dev, data_collator=collator)
        trainer.remove_callback(PrinterCallback)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer.train()
            trainer.predict(dev)
            trainer.save_model()
        return {"work": len(train), "seconds": time.perf_counter() - begun}


def _labeled(path: str, tokenizer: Any) -> list[dict[str, Any]]:
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = sorted({row["label"] for row in rows})
    encoded = tokenizer([row["text"] for row in rows], truncation=True, max_length=128)
    return [
        {name: values[place] for name, values in encoded.items()} | {"labels": names.index(row["label"])}
        for place, row in enumerate(rows)
    ]


class DatasetsTokenize:
    """The `datasets` library: read a text file, tokenize by `map` on all cores, save to disk."""

    def __init__(self, file: str, tokenizer: str, out: str) -> None:
        import datasets
        from transformers import AutoTokenizer

        datasets.disable_progress_bars()
        self._datasets, self._file, self._out = datasets, file, Path(out)
        self._tokenizer = AutoTokenizer.from_pretrained(tokenizer)

    def run(self) -> dict[str, Any]:
        """Tokenize into an empty cache."""
        shutil.rmtree(self._out, ignore_errors=True)
        begun = time.perf_counter()
        read = self._datasets.load_dataset(
            "text", data_files=self._file, split="train", cache_dir=str(self._out / "cache")
        )
        tokenizer = self._tokenizer
        done = read.map(
            lambda rows: {"ids": tokenizer(rows["text"], add_special_tokens=False)["input_ids"]},
            batched=True,
            num_proc=os.cpu_count(),
            remove_columns=["text"],
        )
        done.save_to_disk(str(self._out / "saved"))
        return {"work": os.path.getsize(self._file) / 1e6, "seconds": time.perf_counter() - begun}
