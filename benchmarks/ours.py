"""Contenders of maskwright. All contact with maskwright is here.

`Pretrain`, `Inference` and `Finetune` call public functions only, so they also run with other revisions. `BuildCorpus`
and `LEVERS` name internals: adapt them when these are renamed.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.runner import settle

LEVERS: Mapping[str, Mapping[str, Any]] = {
    # What stands in a lever's place: the value that each function then returns.
    "whole last layer instead of output positions": {"maskwright.training.steps.batches.output_positions": None},
    "attention over rows instead of in C": {"maskwright.kernels.cpu.attention.is_supported": False},
    "freed memory returned to the system": {"maskwright.training.ranks.device.keep_freed_memory": False},
    "512 tokens per micro-batch": {"maskwright.training.pretrain.pretraining_microbatch": 512},
    "8,192 tokens per micro-batch": {"maskwright.training.pretrain.pretraining_microbatch": 8192},
}
GPU_LEVERS: Mapping[str, Mapping[str, Any]] = {
    "no CUDA graphs": {"maskwright.kernels.cuda.graphs._is_supported": False},
    "FlashAttention instead of Triton, no CUDA graphs": {
        "maskwright.kernels.cuda.attention.is_short": False,
        "maskwright.kernels.cuda.graphs._is_supported": False,
    },
    "LayerNorm by PyTorch": {"maskwright.kernels.cuda.norm.is_supported": False},
    "LayerNorm by torch.compile": {
        "maskwright.kernels.cuda.norm.dropout_add_norm": "benchmarks.compiled:dropout_add_norm"
    },
    "cross entropy without torch.compile": {"maskwright.kernels.vocabulary_losses.has_kernels": False},
}
INFERENCE_LEVERS: Mapping[str, Mapping[str, Any]] = {
    "PyTorch instead of the C layers": {
        "maskwright.model.inference_encoder._layers": None,
    },
}


def _remove(levers: Mapping[str, Any]) -> None:
    """Take levers away for the rest of this process: "module:function" stands for that function."""
    for target, value in levers.items():
        if isinstance(value, str):
            module, _, name = value.partition(":")
            patch(target, getattr(importlib.import_module(module), name)).start()
        else:
            patch(target, lambda *_, value=value, **__: value).start()


class Pretrain:
    """A call of `maskwright.pretrain` per run, timed by its own `timing.jsonl`: steps with the wait for their data.

    Args:
        corpus, tokenizer, cache, out: Paths. Prepared text in the cache is reused.
        recipe: A recipe's name, with overrides `set`.
        steps: Steps of a run.
        levers: Functions that return a fixed value.
        arguments: Further arguments of `pretrain`.
    """

    def __init__(
        self,
        corpus: str,
        tokenizer: str,
        cache: str,
        out: str,
        recipe: str,
        set: Sequence[str],
        steps: int,
        levers: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        import maskwright
        from maskwright import pretrain

        self.version = maskwright.__file__
        _remove(levers or {})
        self._pretrain, self._corpus, self._out = pretrain, corpus, Path(out)
        self._arguments = {
            "tokenizer": tokenizer,
            "cache": cache,
            "recipe": recipe,
            "set": list(set),
            "steps": steps,
            "as_published": True,
            "device": "cpu",
            "precision": "fp32",
            "checkpoint_minutes": 60.0,
            "clean": ["deduplicate=none", "min_document_bytes=1"],
            **arguments,
        }

    def run(self) -> dict[str, Any]:
        """Train from scratch."""
        shutil.rmtree(self._out, ignore_errors=True)
        self._train()
        lines = (self._out / "timing.jsonl").read_text(encoding="utf-8").splitlines()
        tokens = seconds = 0.0
        last, done = {}, 0
        for place, line in enumerate(lines):
            last = json.loads(line)
            took = (last["step"] - done) / last["steps_per_second"]
            done = last["step"]
            if place or len(lines) == 1:  # The first steps of a run allocate memory.
                seconds, tokens = seconds + took, tokens + took * last["tokens_per_second"]
        return {
            "work": tokens,
            "seconds": seconds,
            "fill": 1.0,
            "mfu": last.get("model_flops_utilisation", last.get("mfu")),
        }

    def _train(self) -> None:
        self._pretrain(self._corpus, out=self._out, **self._arguments)


class Processes(Pretrain):
    """The same from the command line, by `ranks` processes of one thread each."""

    def __init__(self, ranks: int, **options: Any) -> None:
        super().__init__(**options)
        self._ranks = ranks

    def _train(self) -> None:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self._ranks}"]
        command += ["-m", "maskwright", "pretrain", self._corpus, f"--out={self._out}"]
        arguments = {**self._arguments}
        variables = {"MASKWRIGHT_CACHE": arguments.pop("cache"), "OMP_NUM_THREADS": "1"}
        for name, value in arguments.items():
            for each in value if isinstance(value, list) else [value]:
                command.append(f"--{name.replace('_', '-')}" + ("" if each is True else f"={each}"))
        subprocess.run(command, env={**os.environ, **variables}, check=True, capture_output=True)


class Inference:
    """`Model.fill_mask` or `Model.embed` on some texts, tokenizing included."""

    def __init__(
        self,
        model: str,
        task: str,
        texts: Sequence[str],
        calls: int,
        precision: str = "fp32",
        levers: Mapping[str, Any] | None = None,
    ) -> None:
        import warnings

        from maskwright import load
        from maskwright.inference.model import UntrainedHead

        _remove(levers or {})
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # A precision that falls back to fp32 is not measured under its name.
            loaded: Any = load(model, device="cpu", precision=precision)  # type: ignore[arg-type]
        warnings.simplefilter("ignore", UntrainedHead)
        self._call = loaded.fill_mask if task == "fill-mask" else loaded.embed
        self._texts, self._calls = list(texts), calls
        self._call(self._texts)

    def run(self) -> dict[str, Any]:
        """Call it a few times."""
        settle(lambda: self._call(self._texts))
        begun = time.perf_counter()
        for _ in range(self._calls):
            self._call(self._texts)
        seconds = time.perf_counter() - begun
        return {"work": self._calls, "seconds": seconds, "ms": 1e3 * seconds / self._calls}


class Finetune:
    """A whole call of `maskwright.finetune`: read, tokenize, train, score each epoch and the test set, save.

    Baselines are measured in it too.
    """

    def __init__(
        self, model: str, train: str, dev: str, out: str, kind: str = "classification", **arguments: Any
    ) -> None:
        from maskwright import finetune

        self._finetune, self._model, self._out = finetune, model, Path(out)
        self._arguments = {"task": kind, "train": train, "dev": dev, **arguments}

    def run(self) -> dict[str, Any]:
        """Fine-tune from the same weights."""
        shutil.rmtree(self._out, ignore_errors=True)
        begun, cpu = time.perf_counter(), time.process_time()
        done = self._finetune(self._model, out=self._out, device="cpu", precision="fp32", **self._arguments)
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        results = done.results
        assert results is not None, "it was interrupted"
        main = results.main_metric
        return {
            "work": results.data["train"]["examples"],
            "seconds": seconds,
            "cpu": cpu,
            "steps": results.best.seconds,
            "score": (results.best.test or results.best.dev)[main],
            "settings": dict(results.settings),
            "baselines": {name: scores.get("test", scores["dev"])[main] for name, scores in results.baselines.items()},
        }


class BuildCorpus:
    """From a text file to token shards: clean, deduplicate, split sentences, tokenize, find word starts, write."""

    def __init__(self, file: str, kind: str, vocabulary: int, cache: str) -> None:
        from maskwright.data.cleaning import store
        from maskwright.data.shards import tokenize
        from maskwright.data.tokenizers import spec as tokenizer_spec
        from maskwright.data.tokenizers.training import train_tokenizer

        spec = {
            "wordpiece": tokenizer_spec.WordPiece,
            "byte_bpe": tokenizer_spec.ByteBPE,
            "unigram": tokenizer_spec.Unigram,
        }[kind](vocab_size=vocabulary)
        self._file, self._cache = file, Path(cache)
        self._clean, self._tokenize = store.clean_corpus, tokenize.tokenize_corpus
        clean = self._clean([file], cache=self._cache / "first")
        self.tokenizer = train_tokenizer(spec, clean, seed=0, max_sample_bytes=3_000_000, cache=self._cache / "first")

    def run(self) -> dict[str, Any]:
        """Build in an empty cache."""
        cache = self._cache / "timed"
        shutil.rmtree(cache, ignore_errors=True)
        begun = time.perf_counter()
        clean = self._clean([self._file], cache=cache)
        cleaned = time.perf_counter()
        self._tokenize(clean, self.tokenizer, cache=cache)
        ended = time.perf_counter()
        return {
            "work": os.path.getsize(self._file) / 1e6,
            "seconds": ended - begun,
            "cleaning": cleaned - begun,
            "tokenizing": ended - cleaned,
        }


class EncodeAlone(BuildCorpus):
    """Peer of `BuildCorpus`: the tokenizers library on documents in memory, same tokenizer; nothing is written."""

    def run(self) -> dict[str, Any]:
        """Encode all documents."""
        os.environ["TOKENIZERS_PARALLELISM"] = "true"
        documents = Path(self._file).read_text(encoding="utf-8").split("\n\n")
        backend = self.tokenizer.backend
        begun = time.perf_counter()
        for first in range(0, len(documents), 1000):
            backend.encode_batch_fast(documents[first : first + 1000], add_special_tokens=False)
        return {"work": os.path.getsize(self._file) / 1e6, "seconds": time.perf_counter() - begun}
