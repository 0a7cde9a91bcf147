"""A trained model on disk, as far as another run needs it: its shape, its weights, its tokenizer, and which it is."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from maskwright.core.errors import ConversionError
from maskwright.core.files import checksum
from maskwright.core.spec import fingerprint
from maskwright.encoder.config import EncoderConfig
from maskwright.interchange.huggingface import load_model
from maskwright.interchange.weight_files import WEIGHTS
from maskwright.recipes.recipe import FamilyName
from maskwright.text.tokenizer import Tokenizer
from maskwright.text.vocabulary_extension import Extension

_PER_ENTRY = ("encoder.word_embeddings.weight", "heads.mlm.bias")
"""Weights with one row for each entry of the vocabulary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingModel:
    """A model folder that was read. Its weights have a row for each entry of its tokenizer, and no more.

    Attributes:
        name: How the user named it.
        folder: Where it lies.
        family: Hugging Face's model type.
        config: The encoder's shape.
        state: Weights in fp32 as "encoder.*" and "heads.KIND.*".
        tokenizer: Its tokenizer.
        fingerprint: Identifies what it computes: config.json and the weights' files.
    """

    name: str
    folder: Path
    family: FamilyName
    config: EncoderConfig
    state: dict[str, Tensor]
    tokenizer: Tokenizer
    fingerprint: str

    def extended(self, extension: Extension) -> "ExistingModel":
        """Return the model with a row for each new entry: the mean of the rows of the pieces it was written with."""
        state = dict(self.state)
        for name in _PER_ENTRY:
            if name in state:
                rows = state[name]
                means = [rows[list(pieces)].mean(dim=0, keepdim=True) for pieces in extension.pieces]
                state[name] = torch.cat([rows, *means])
        return replace(self, state=state, tokenizer=extension.tokenizer)

    def to_json(self) -> dict[str, str]:
        """Return what a run's record says of it."""
        return {"model": self.name, "family": self.family, "fingerprint": self.fingerprint}


def open_existing(name: str) -> ExistingModel:
    """Read a run's folder, a Hugging Face folder or a hub name.

    Raises:
        ConversionError: If there is no such model, or it does not fit together.
        DataError: If its tokenizer cannot be read.
    """
    folder = Path(name).expanduser()
    if (folder / "run.json").exists() and not (folder / "config.json").exists():
        raise ConversionError(
            f"the run in {folder} has not saved a model yet",
            todo="It saves one with its first checkpoint; repeat its command to go on.",
        )
    loaded = load_model(name)
    tokenizer = Tokenizer.from_folder(loaded.folder)
    entries = tokenizer.special_tokens.vocab_size
    if entries > loaded.vocab_size:
        raise ConversionError(
            f"the tokenizer in {loaded.folder} has {entries} entries, the weights beside it have embeddings for "
            f"{loaded.vocab_size}",
            todo="Use the tokenizer that the model was trained with.",
        )
    # Some tables are longer than the vocabulary (ERNIE's: 18,000 rows for 17,964 entries); nothing stands for those.
    state = {key: tensor[:entries] if key in _PER_ENTRY else tensor for key, tensor in loaded.state.items()}
    return ExistingModel(
        name=name,
        folder=loaded.folder,
        family=loaded.family,
        config=loaded.config,
        state=state,
        tokenizer=tokenizer,
        fingerprint=_fingerprint(loaded.folder),
    )


def _fingerprint(folder: Path) -> str:
    weights = [folder / WEIGHTS] if (folder / WEIGHTS).exists() else sorted(folder.glob("*.safetensors"))
    return fingerprint({file.name: checksum(file) for file in (folder / "config.json", *weights)})
