"""Folders of sentence-transformers: an encoder, its pooling, and its tokenizer set as `maskwright.embed` uses it."""

from pathlib import Path
from typing import Any, Literal

from maskwright.data.tokenizers.tokenizer import Tokenizer


def write_sentence_folder(
    source: Path,
    folder: Path,
    tokenizer: Tokenizer,
    *,
    hidden_size: int,
    max_length: int,
    pooling: Literal["mean", "first"] = "mean",
    normalize: bool = False,
) -> Any:
    """Write the folder of a model, and return the SentenceTransformer that is loaded from it, on the CPU.

    Args:
        source: The model's Hugging Face folder.
        hidden_size, max_length: Of the model.
        pooling, normalize: As for `maskwright.embed`.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    mode = {"mean": "mean", "first": "cls"}[pooling]
    modules = [Transformer(str(source)), Pooling(hidden_size, mode)]
    made = SentenceTransformer(modules=modules + [Normalize()] * normalize, device="cpu")
    save_sentence_folder(made, folder, tokenizer, max_length)
    return SentenceTransformer(str(folder), device="cpu")


def save_sentence_folder(model: Any, folder: Path, tokenizer: Tokenizer, max_length: int) -> None:
    """Write a SentenceTransformer, without the model card that quotes its training texts."""
    model.save(str(folder), create_model_card=False)
    # As in `maskwright.embed`: the model's maximum length, and special tokens in a text are text.
    tokenizer.save(folder, max_length=max_length, segments=False, split_special_tokens=True)
