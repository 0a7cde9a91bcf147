"""`maskwright.export`: a trained model as a folder for ONNX Runtime, OpenVINO, sentence-transformers or the hub."""

import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from maskwright.checkpoints.checkpoint import Checkpoint, read_checkpoint
from maskwright.checkpoints.location import GENERATOR
from maskwright.checkpoints.quiet import quiet
from maskwright.checkpoints.sentence_folder import MODULES, Pooling, SentenceModules
from maskwright.checkpoints.weight_files import WEIGHTS
from maskwright.core.errors import ConversionError, MaskwrightError, unknown_name
from maskwright.core.extras import require
from maskwright.core.storage.files import atomic_folder, read_if_exists, read_json, write_json
from maskwright.core.storage.tensor_files import full_disk_named
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.model import fine_tuned
from maskwright.serving import model_card, onnx_graph, openvino_graph
from maskwright.serving.onnx_graph import PRECISIONS, OnnxPrecision
from maskwright.serving.parity import Parity, compare_embeddings, compare_heads, compare_tasks, examples_for, texts_for

Target = Literal["onnx", "openvino", "sentence-transformers", "hub"]
TARGETS: tuple[Target, ...] = get_args(Target)
LIMITS: Mapping[str, tuple[float, float]] = {"fp32": (1e-4, 0.98), "fp16": (1e-2, 0.98), "int8": (1.0, 0.9)}
"""By precision, the largest difference as a share of the largest score, and the least agreement of an export."""

_TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "vocab.*", "merges.txt", "*.model")
_LIBRARIES = {
    "onnx": ("onnx", "onnx", "onnxruntime", "onnxscript", "transformers"),
    "openvino": ("openvino", "openvino", "onnx", "onnxscript", "transformers"),
    "sentence-transformers": ("embedding", "sentence_transformers"),
}
"""The extra of a target, and its libraries."""


_GRAPHS = {"onnx": onnx_graph, "openvino": openvino_graph}
"""By target the module with `FILES` by precision, `convert` from ONNX in fp32, and `run`."""


class PrecisionLeftOut(UserWarning):
    """A graph differs too much from its source and was not kept; that of another precision was."""


def export(
    model: str | Path,
    *,
    to: Target,
    out: str | Path,
    precision: str | Sequence[str] = "fp32",
    encoder: bool = False,
    pooling: Pooling | None = None,
    normalize: bool | None = None,
    texts: str | Path | None = None,
    license: str = "",
    language: str | None = None,
) -> list[Parity]:
    """Write a model for other programs, with a model card, and compare it with its source.

    Args:
        model: A run directory, or a Hugging Face model directory or hub name.
        to: onnx, openvino, sentence-transformers, or hub (safetensors for transformers).
        out: A new directory. If the check fails, nothing is left of it.
        precision: Of ONNX and OpenVINO files: fp32, fp16 or int8.
        encoder: Export hidden states instead of the head's scores (onnx, openvino).
        pooling, normalize: As for `embed`.
        texts: Texts for the check; for a fine-tuned model a file as for `maskwright predict`, of which 500 are used.
            Default: examples of the run's corpus and eight sentences.
        license: License in the model card, as the hub calls it, e.g. apache-2.0. Default: that of the source.
        language: Language code in the model card, e.g. en. Default: that of the source.

    Returns:
        For each precision that was kept, how near it is to the source; nothing for the hub, where the weights are the
        same. One that differs from the source is left out with the warning `PrecisionLeftOut`, if another is kept.

    Raises:
        MaskwrightError: If the model cannot be loaded, a library is missing, or the export differs from its source.

    Example:
        >>> maskwright.export("runs/reviews", to="onnx", precision="int8", out="reviews-onnx")[0].agreement
        0.998
    """
    wanted = (precision,) if isinstance(precision, str) else tuple(precision)
    _check_choices(to, wanted, encoder=encoder, pooled=normalize is not None or pooling is not None, texts=texts)
    out, file = Path(out).expanduser(), None if texts is None else Path(texts).expanduser()
    # The current directory cannot be replaced, even if it is empty.
    if out.exists() and (not out.is_dir() or any(out.iterdir()) or out.samefile(Path.cwd())):
        raise MaskwrightError(f"{out} exists", hint="Choose a new folder")
    loaded = read_checkpoint(model)
    tokenizer = _check_tokenizer(loaded)
    precisions = [name for name in PRECISIONS if name in wanted]
    parities: list[Parity] = []
    head = "encoder" if encoder or to == "sentence-transformers" else onnx_graph.head_of(loaded)
    if to in _GRAPHS and not encoder and (loaded.folder / MODULES).is_file() and not loaded.modules.problem:
        head = "embedding"
    with atomic_folder(out) as folder:
        if to in _GRAPHS:
            parities = _to_graph(to, loaded, tokenizer, head, folder, precisions, file)
        elif to == "sentence-transformers":
            with full_disk_named(out):
                parities = [_to_sentence_transformers(loaded, folder, pooling, normalize, file)]
        else:
            _to_hub(loaded, folder)
        card = model_card.text(out.name, loaded, head, to, parities, license=license, language=language)
        (folder / "README.md").write_text(card, encoding="utf-8", newline="\n")
    return parities


def _check_choices(
    to: str, precisions: Sequence[str], *, encoder: bool, pooled: bool, texts: str | Path | None
) -> None:
    for kind, names, known in (("target", (to,), TARGETS), ("precision", precisions, PRECISIONS)):
        for name in names:
            if name not in known:
                raise unknown_name(MaskwrightError, kind, name, known)
    for option, value, applies in (
        ("--precision", tuple(precisions) != ("fp32",), to in _GRAPHS),
        ("--encoder", encoder, to in _GRAPHS),
        ("--pooling and --normalize", pooled, to == "sentence-transformers"),
        ("--texts", texts is not None, to != "hub"),
    ):
        if value and not applies:
            verb = "have" if " and " in option else "has"
            raise MaskwrightError(f"{option} {verb} no effect with --to {to}", hint="Leave it out")
    if to != "hub":
        require(f"--to {to}", *_LIBRARIES[to])
    if to == "openvino" and "int8" in precisions:
        require("--to openvino --precision int8", "openvino-int8", "nncf")


def _check_tokenizer(loaded: Checkpoint) -> Tokenizer:
    """Return the tokenizer; refuse files that other programs cannot load, or that have them render a template."""
    tokenizer = loaded.tokenizer
    path = loaded.folder / "tokenizer_config.json"
    settings = read_if_exists(path)
    length = settings.get("model_max_length")
    if length is not None and (isinstance(length, bool) or not isinstance(length, int | float) or not length >= 1):
        raise ConversionError(f"{path}: model_max_length is {length!r}", allowed="a number of tokens from 1 on")
    template = loaded.folder / "chat_template.jinja"
    if "chat_template" in settings or template.exists():
        raise ConversionError(
            f"{template if template.exists() else path} has a chat template, which other programs execute",
            hint="Remove it: encoders use none",
        )
    return tokenizer


def _to_graph(
    to: str,
    loaded: Checkpoint,
    tokenizer: Tokenizer,
    head: str,
    folder: Path,
    precisions: Sequence[OnnxPrecision],
    file: Path | None,
) -> list[Parity]:
    source, module = loaded.folder, _GRAPHS[to]
    files: dict[OnnxPrecision, Path] = {name: folder / to / module.FILES[name] for name in precisions}
    onnx = folder / to / onnx_graph.FILES["fp32"]
    # The texts are read first: the rest takes long.
    tuned = fine_tuned.load(loaded) if loaded.task is not None and head == loaded.task.head else None
    examples: Sequence[Any] = texts_for(source, file) if tuned is None else examples_for(tuned, file)
    onnx.parent.mkdir()
    model = onnx_graph.load_transformers(source, head, loaded.modules)
    onnx_graph.write_onnx(model, source, head, onnx)
    for name, path in files.items():
        if path != onnx:
            module.convert(onnx, path, name)
    if onnx not in files.values():
        _remove(onnx)
    _copy(source, folder, *_TOKENIZER_FILES)
    _set_max_length(folder, loaded.max_length)
    write_json(
        folder / "config.json", {**read_json(source / "config.json"), "architectures": model.config.architectures}
    )
    original = onnx_graph.run_original(model, head)
    exported: dict[str, onnx_graph.Run] = {name: module.run(path, head) for name, path in files.items()}
    if tuned is not None:
        parities = compare_tasks(tuned, original, exported, examples)
    else:
        parities = compare_heads(head, original, exported, examples, tokenizer, loaded.max_length)
    return _passing(parities, files)


def _passing(parities: Sequence[Parity], files: Mapping[OnnxPrecision, Path]) -> list[Parity]:
    """Remove the files of precisions that fail the check; raise ConversionError if none passes."""
    failed: dict[str, ConversionError] = {}
    for parity in parities:
        try:
            parity.check(LIMITS)
        except ConversionError as error:
            failed[parity.precision] = error
    if len(failed) == len(parities):
        raise next(iter(failed.values()))
    for precision, path in files.items():
        if precision in failed:
            warnings.warn(f"left out: {failed[precision]}", PrecisionLeftOut, stacklevel=4)
            _remove(path)
    return [parity for parity in parities if parity.precision not in failed]


def _remove(graph: Path) -> None:
    """Remove a graph and the file of its weights, if it has one."""
    for path in graph.parent.glob(f"{graph.stem}.*"):
        path.unlink()


def _set_max_length(folder: Path, max_length: int) -> None:
    """State the longest input in the files of the tokenizer, which may state the number of positions."""
    path = folder / "tokenizer_config.json"
    write_json(path, {**read_if_exists(path), "model_max_length": max_length})
    path = folder / "tokenizer.json"
    if isinstance((data := read_if_exists(path)).get("truncation"), dict):
        write_json(path, {**data, "truncation": {**data["truncation"], "max_length": max_length}})


def _to_sentence_transformers(
    loaded: Checkpoint, folder: Path, pooling: Pooling | None, normalize: bool | None, file: Path | None
) -> Parity:
    from maskwright.inference.model import load

    texts = texts_for(loaded.folder, file)
    model = load(loaded, device="cpu")
    pooling, normalize = model.pooled_as(pooling, normalize)
    with quiet():
        saved = loaded.to_sentence_transformer(
            folder,
            SentenceModules(
                pooling=pooling,
                normalize=normalize,
                dense=model.modules.dense_after(pooling),
                truncate_dim=model.modules.truncate_dim,
            ),
        )
        # Whole vectors are compared.
        saved.truncate_dim, model.modules = None, replace(model.modules, truncate_dim=None)
        parity = compare_embeddings(
            lambda texts: model.embed(texts, pooling=pooling, normalize=normalize),
            lambda texts: saved.encode(texts, show_progress_bar=False),
            texts,
        )
    parity.check(LIMITS)
    return parity


def _to_hub(loaded: Checkpoint, folder: Path) -> None:
    """Copy what loads the model; not the data card, which quotes the corpus, nor `run.json`, which has paths."""
    source = loaded.folder
    patterns = ("config.json", WEIGHTS, *_TOKENIZER_FILES)
    _copy(source, folder, *patterns, "task.json", "recipe.json")
    if loaded.generator is not None:
        read_checkpoint(loaded.generator)  # Damaged files are refused.
        (folder / GENERATOR).mkdir()
        _copy(loaded.generator, folder / GENERATOR, *patterns)
    if (source / MODULES).is_file():
        _copy(source, folder, MODULES, "config_sentence_transformers.json", "sentence_bert_config.json")
        for module in source.glob("[0-9]*_*/"):
            shutil.copytree(module, folder / module.name)


def _copy(source: Path, folder: Path, *patterns: str) -> None:
    for path in {path for pattern in patterns for path in source.glob(pattern) if path.is_file()}:
        shutil.copyfile(path, folder / path.name)
