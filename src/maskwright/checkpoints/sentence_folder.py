"""Folders of sentence-transformers: an encoder, its pooling, and its tokenizer set as `maskwright.embed` uses it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from maskwright.checkpoints.weight_files import WEIGHTS
from maskwright.core.errors import ConversionError
from maskwright.core.files import read_json, records_of, set_default_mode, write_json
from maskwright.data.tokenizers.tokenizer import Tokenizer

Pooling = Literal["mean", "first"]
MODULES = "modules.json"
"""The file that marks a folder of sentence-transformers."""
MODES: dict[Pooling, str] = {"mean": "mean", "first": "cls"}
"""sentence-transformers' names of the poolings."""
_OLD_MODES: dict[Pooling, str] = {"mean": "mean_tokens", "first": "cls_token"}
"""Endings of their entries before version 6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceModules:
    """What a folder computes from its encoder's hidden states: their mean, unless its modules say otherwise.

    Attributes:
        pooling, normalize: As for `maskwright.embed`.
        max_length: Longest input in tokens; None for the model's.
        problem: Why maskwright cannot compute it; "" if it can.
    """

    pooling: Pooling = "mean"
    normalize: bool = False
    max_length: int | None = None
    problem: str = ""

    def check(self, name: str) -> None:
        """Raise ConversionError if there is a problem; `name` is the model's."""
        if self.problem:
            raise ConversionError(
                f"{name} is a folder of sentence-transformers with {self.problem}",
                allowed="a Transformer, a Pooling (mean or cls) and at most a Normalize, without a default prompt",
                todo="Load it with sentence-transformers; or set the pooling, `mean` or `first`, to ignore its modules",
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
        model, tokenizer, transformer = (
            read_json(path) if (path := folder / f"{name}.json").is_file() else {}
            for name in ("config_sentence_transformers", "tokenizer_config", "sentence_bert_config")
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
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError) as error:
        raise ConversionError(
            f"{folder} has a {MODULES}, but is no folder of sentence-transformers: {type(error).__name__}: {error}",
            todo="Save or download it again",
        ) from error
    problem = ""
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        problem = f"the modules {', '.join(kinds)}"
    elif len(modes) > 1 or modes[0] not in MODES.values():
        problem = f"the pooling {', '.join(modes)}"
    elif prompt:
        problem = f"the default prompt {prompt!r}"
    elif transformer.get("do_lower_case"):
        problem = "do_lower_case in sentence_bert_config.json"
    if problem:
        return SentenceModules(max_length=max_length, problem=problem)
    return SentenceModules(
        pooling="first" if modes == [MODES["first"]] else "mean", normalize="Normalize" in kinds, max_length=max_length
    )


def write_sentence_modules(folder: Path, modules: SentenceModules, *, hidden_size: int, max_length: int) -> None:
    """Write the modules into a model folder, under the names that all versions of sentence-transformers read."""
    kinds = {"Transformer": "", "Pooling": "1_Pooling"} | ({"Normalize": "2_Normalize"} if modules.normalize else {})
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(kinds.items())
    ]
    pooling = {f"pooling_mode_{mode}": modules.pooling == ours for ours, mode in _OLD_MODES.items()}
    for path in list(kinds.values())[1:]:
        (folder / path).mkdir(exist_ok=True)
    write_json(folder / kinds["Pooling"] / "config.json", {"word_embedding_dimension": hidden_size, **pooling})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    write_json(folder / MODULES, listed)


def write_sentence_folder(
    source: Path,
    folder: Path,
    tokenizer: Tokenizer,
    *,
    hidden_size: int,
    max_length: int,
    pooling: Pooling = "mean",
    normalize: bool = False,
) -> Any:
    """Write the folder of the model in `source`; return the SentenceTransformer that is loaded from it, on the CPU."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling as PoolingModule

    with records_of(source, "a file for transformers"):
        transformer = Transformer(str(source))
    modules = [transformer, PoolingModule(hidden_size, MODES[pooling])]
    made = SentenceTransformer(modules=modules + [Normalize()] * normalize, device="cpu")
    save_sentence_folder(made, folder, tokenizer, max_length)
    return SentenceTransformer(str(folder), device="cpu")


def save_sentence_folder(model: Any, folder: Path, tokenizer: Tokenizer, max_length: int) -> None:
    """Write a SentenceTransformer, without the model card that quotes its training texts."""
    model.save(str(folder), create_model_card=False)
    set_default_mode(folder / WEIGHTS)
    # As in `maskwright.embed`: the model's maximum length, and special tokens in a text are text.
    tokenizer.save(folder, max_length=max_length, segments=False, split_special_tokens=True)
