"""Folders of sentence-transformers: an encoder, its pooling, and its tokenizer set as `maskwright.embed` uses it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from maskwright.checkpoints.weight_files import WEIGHTS
from maskwright.core.errors import ConversionError
from maskwright.core.storage.files import (
    atomic_path,
    read_if_exists,
    read_json,
    set_default_mode,
    write_json,
)
from maskwright.core.storage.tensor_files import read_tensors, write_tensors
from maskwright.data.tokenizers.tokenizer import Tokenizer

Pooling = Literal["mean", "first"]
MODULES = "modules.json"
"""The file that marks a folder of sentence-transformers."""
MODES: dict[Pooling, str] = {"mean": "mean", "first": "cls"}
"""sentence-transformers' names of the poolings."""
_OLD_MODES: dict[Pooling, str] = {"mean": "mean_tokens", "first": "cls_token"}
"""Endings of their entries before version 6."""
_WITH_DENSE = ["Transformer", "Pooling", "Dense"]
_LINEAR = "torch.nn.modules.linear.Identity"
"""The activation of a Dense module without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceModules:
    """Pooling and modules after the encoder; the mean of the hidden states if the folder has no modules.

    Attributes:
        pooling, normalize: As for `maskwright.embed`.
        dense: A linear layer after the pooling, before the normalization; None for none.
        max_length: Longest input in tokens; None for the model's.
        trained_dimensions: Numbers of leading dimensions that were trained to stand alone (Matryoshka; Kusupati et al.
            2022): `matryoshka_dimensions` in config.json, as vLLM reads it, and sentence-transformers' `truncate_dim`.
        truncate_dim: sentence-transformers' default of `dimensions` of `maskwright.embed`, after the normalization.
        problem: Why maskwright cannot compute it; "" if it can.
    """

    pooling: Pooling = "mean"
    normalize: bool = False
    dense: nn.Linear | None = field(default=None, compare=False)
    max_length: int | None = None
    trained_dimensions: tuple[int, ...] = ()
    truncate_dim: int | None = None
    problem: str = ""

    def dense_after(self, pooling: Pooling) -> nn.Linear | None:
        """Return the linear layer that follows a pooling: it was trained for that of the folder only."""
        return self.dense if pooling == self.pooling else None

    def check(self, name: str) -> None:
        """Raise ConversionError if there is a problem; `name` is the model's."""
        if self.problem:
            raise ConversionError(
                f"{name} is a folder of sentence-transformers with {self.problem}",
                allowed="a Transformer, a Pooling (mean or cls), at most a linear Dense, at most a Normalize, in this "
                "order, without a default prompt",
                hint="Load it with sentence-transformers; or set the pooling, `mean` or `first`, to ignore its modules",
            )


def read_sentence_modules(folder: Path) -> SentenceModules:
    """Read the modules of a folder; the default if it is none of sentence-transformers.

    Raises ConversionError if a file is damaged.
    """
    if not (folder / MODULES).is_file():
        return SentenceModules()
    try:
        modules = read_json(folder / MODULES)
        kinds = [each["type"].rpartition(".")[2] for each in modules]
        model, tokenizer, transformer, encoder = (
            read_if_exists(folder / f"{name}.json")
            for name in ("config_sentence_transformers", "tokenizer_config", "sentence_bert_config", "config")
        )
        # sentence-transformers before version 6 wrote the first of these, which has precedence.
        longest = transformer.get("max_seq_length") or tokenizer.get("model_max_length")
        prompt = (model.get("prompts") or {}).get(model.get("default_prompt_name"))
        pooling = read_json(folder / modules[1]["path"] / "config.json") if "Pooling" in kinds[1:2] else {}
        mode = pooling.get("pooling_mode") or [
            name.removeprefix("pooling_mode_").removesuffix("_token").removesuffix("_tokens")
            for name, is_used in pooling.items()
            if name.startswith("pooling_mode_") and is_used
        ]
        modes = [mode] if isinstance(mode, str) else mode or ["mean"]
        max_length = int(longest) if longest else None
        truncate_dim = int(model.get("truncate_dim") or 0) or None
        trained = [*(encoder.get("matryoshka_dimensions") or ()), truncate_dim]
        trained_dimensions = tuple(int(each) for each in trained if each)
        has_dense = kinds in (_WITH_DENSE, [*_WITH_DENSE, "Normalize"])
        dense_folder = folder / modules[2]["path"] if has_dense else folder
        config = read_json(dense_folder / "config.json") if has_dense else {"activation_function": _LINEAR}
        is_linear = config["activation_function"] == _LINEAR and not config.get("use_residual")
        # Older versions wrote only pytorch_model.bin.
        has_weights = not has_dense or (dense_folder / WEIGHTS).is_file()
        dense = _dense(read_tensors(dense_folder / WEIGHTS)) if has_dense and is_linear and has_weights else None
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError, RuntimeError) as error:
        raise ConversionError(
            f"{folder} has a {MODULES}, but is no folder of sentence-transformers: {type(error).__name__}: {error}",
            hint="Save or download it again",
        ) from error
    problem = ""
    if not has_dense and kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        problem = f"the modules {', '.join(kinds)}"
    elif len(modes) > 1 or modes[0] not in MODES.values():
        problem = f"the pooling {', '.join(modes)}"
    elif not is_linear:
        problem = "a Dense module that is not linear"
    elif not has_weights:
        problem = f"a Dense module without {WEIGHTS}"
    elif prompt:
        problem = f"the default prompt {prompt!r}"
    elif transformer.get("do_lower_case"):
        problem = "do_lower_case in sentence_bert_config.json"
    if problem:
        return SentenceModules(max_length=max_length, problem=problem)
    return SentenceModules(
        pooling="first" if modes == [MODES["first"]] else "mean",
        normalize="Normalize" in kinds,
        dense=dense,
        max_length=max_length,
        trained_dimensions=trained_dimensions,
        truncate_dim=truncate_dim,
    )


def _dense(weights: Mapping[str, torch.Tensor]) -> nn.Linear:
    """Return the layer of a Dense module's weights; raises ValueError if they are of another shape."""
    weight, bias = weights["linear.weight"], weights.get("linear.bias")
    if weight.dim() != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        raise ValueError(f"a Dense module has weights {list(weight.shape)} and another bias")
    with torch.device("meta"):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.load_state_dict({name.removeprefix("linear."): each for name, each in weights.items()}, assign=True)
    return layer.eval().requires_grad_(False)


def write_sentence_modules(folder: Path, modules: SentenceModules, *, hidden_size: int, max_length: int) -> None:
    """Write the modules into a model folder, under the names that all versions of sentence-transformers read."""
    dense = modules.dense
    names = ["Pooling"] + ["Dense"] * (dense is not None) + ["Normalize"] * modules.normalize
    kinds = {"Transformer": ""} | {kind: f"{number}_{kind}" for number, kind in enumerate(names, start=1)}
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(kinds.items())
    ]
    pooling = {f"pooling_mode_{mode}": modules.pooling == ours for ours, mode in _OLD_MODES.items()}
    for path in list(kinds.values())[1:]:
        (folder / path).mkdir(exist_ok=True)
    write_json(folder / kinds["Pooling"] / "config.json", {"word_embedding_dimension": hidden_size, **pooling})
    if dense is not None:
        sizes = {"in_features": dense.in_features, "out_features": dense.out_features}
        config = {**sizes, "bias": dense.bias is not None, "activation_function": _LINEAR}
        write_json(folder / kinds["Dense"] / "config.json", config)
        file = folder / kinds["Dense"] / WEIGHTS
        weights = {f"linear.{name}": each.detach().float().cpu() for name, each in dense.named_parameters()}
        with atomic_path(file) as temporary:
            write_tensors(temporary, weights, shown=file)
    if modules.truncate_dim is not None:
        write_json(folder / "config_sentence_transformers.json", {"truncate_dim": modules.truncate_dim})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    write_json(folder / MODULES, listed)


def save_sentence_folder(model: Any, folder: Path, tokenizer: Tokenizer, max_length: int) -> None:
    """Write a SentenceTransformer, without the model card that quotes its training texts."""
    model.save(str(folder), create_model_card=False)
    finish_sentence_folder(folder, tokenizer, max_length)


def finish_sentence_folder(folder: Path, tokenizer: Tokenizer, max_length: int) -> None:
    set_default_mode(folder / WEIGHTS)
    # As in `maskwright.embed`: the model's maximum length, and special tokens in a text are text.
    tokenizer.save(folder, max_length=max_length, segments=False, split_special_tokens=True)
