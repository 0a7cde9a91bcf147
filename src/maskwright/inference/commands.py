"""The commands fill-mask, detect and embed as functions: load a model, apply it to texts, return the results."""

import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.checkpoints.sentence_folder import Pooling
from maskwright.core.storage.files import atomic_path
from maskwright.inference.detect import THRESHOLD, Detection
from maskwright.inference.fill_mask import MaskPrediction
from maskwright.inference.model import Model, load
from maskwright.inference.precision import Precision
from maskwright.inference.texts import gather, write_json_lines
from maskwright.reporting.reporter import Progress, no_progress


def fill_mask(
    model: str | Path | Model,
    texts: str | Sequence[str] = (),
    *,
    file: str | Path | None = None,
    column: str | None = None,
    top_k: int = 5,
    out: str | Path | None = None,
    device: str = "auto",
    precision: Precision = "fp32",
) -> list[list[list[MaskPrediction]]]:
    """Predict the token at each mask of each text (`Model.fill_mask`).

    Args:
        model: A run directory, or a Hugging Face model directory or hub name. In Python also a loaded model.
        texts: Texts with `[MASK]` or `<mask>`; both work for any model.
        file: A file with one text per line, or a CSV, TSV, JSON Lines or Parquet file; `-` for standard input.
        column: Column of the texts in `file`. Default: text, content, or the only column of texts.
        top_k: Predictions per mask.
        out: Write the results to this .jsonl file, one line per text.
        device, precision: As for `load`.
    """
    gathered = gather(texts, file, column, out=out)
    filled = _loaded(model, device, precision).fill_mask(gathered, top_k=top_k)
    if out is not None:
        write_json_lines(Path(out).expanduser(), filled_to_json(gathered, filled))
    return filled


def filled_to_json(texts: Sequence[str], filled: list[list[list[MaskPrediction]]]) -> list[dict[str, Any]]:
    return [
        {"text": text, "masks": [[asdict(best) for best in mask] for mask in masks]}
        for text, masks in zip(texts, filled, strict=True)
    ]


def detect(
    model: str | Path | Model,
    texts: str | Sequence[str] = (),
    *,
    file: str | Path | None = None,
    column: str | None = None,
    threshold: float = THRESHOLD,
    out: str | Path | None = None,
    device: str = "auto",
    precision: Precision = "fp32",
) -> list[Detection]:
    """Predict which tokens of each text were replaced (`Model.detect`).

    Args:
        model, file, column, out: As for `fill_mask`.
        texts: Texts.
        threshold: Probability above which a token is marked.
        device, precision: As for `load`.
    """
    gathered = gather(texts, file, column, out=out)
    detections = _loaded(model, device, precision).detect(gathered, threshold=threshold)
    if out is not None:
        write_json_lines(Path(out).expanduser(), map(asdict, detections))
    return detections


def embed(
    model: str | Path | Model,
    texts: str | Sequence[str] = (),
    *,
    file: str | Path | None = None,
    column: str | None = None,
    out: str | Path | None = None,
    pooling: Pooling | None = None,
    normalize: bool | None = None,
    max_length: int | None = None,
    windows: bool = False,
    dimensions: int | None = None,
    device: str = "auto",
    precision: Precision = "fp32",
    progress: Progress = no_progress,
) -> NDArray[np.float32]:
    """Return one embedding per text, shape (n, H) (`Model.embed`).

    Args:
        model, file, column: As for `fill_mask`.
        texts: Texts.
        out: Write the embeddings to this .npy file, one row per text, float32.
        pooling: mean (of a text's tokens) or first (the [CLS] token). Default: that of a sentence-transformers folder,
            else mean.
        normalize: Scale each vector to length 1. Default: as a sentence-transformers folder does, else not.
        max_length: As for `evaluate`.
        windows: Read longer texts in overlapping windows, whose embeddings are averaged, weighted by tokens, instead of
            truncating them.
        dimensions: Keep this many leading dimensions of each vector, before it is scaled. Default: all.
        device, precision: As for `load`.
    """
    gathered = gather(texts, file, column, out=out)
    loaded = _loaded(model, device, precision)
    # The file is opened first, so that an unwritable directory fails immediately.
    with atomic_path(Path(out).expanduser()) if out is not None else contextlib.nullcontext() as temporary:
        vectors = loaded.embed(
            gathered,
            pooling=pooling,
            normalize=normalize,
            max_length=max_length,
            windows=windows,
            dimensions=dimensions,
            progress=progress,
        )
        if temporary:
            with open(temporary, "wb") as saved:
                np.save(saved, vectors)
    return vectors


def _loaded(model: str | Path | Model, device: str, precision: Precision) -> Model:
    return model if isinstance(model, Model) else load(model, device=device, precision=precision)
