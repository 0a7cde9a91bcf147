"""`maskwright.load`: a trained model that fills masks, detects replaced tokens and embeds texts."""

import functools
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.core.devices import choose_device
from maskwright.core.errors import ConversionError, DataError, MaskwrightError
from maskwright.core.half_characters import told_half_character
from maskwright.core.types import IntArray, ProductPrecision
from maskwright.data.progress import Progress, no_progress
from maskwright.data.tokenizers.tokenizer import Encoded, Tokenizer
from maskwright.huggingface.huggingface import LoadedModel, load_model
from maskwright.inference.batching import TextBatch, batches
from maskwright.inference.detect import THRESHOLD, Detection, Judged
from maskwright.inference.embed import Pooling, check_pooling, mean_of_tokens
from maskwright.inference.fill_mask import Filled, best_tokens, fill, read_masks
from maskwright.inference.mlm_scores import Scores, scores_of
from maskwright.inference.precision import Precision, choose_precision
from maskwright.model.encoder import Encoder
from maskwright.model.states import States, states_of
from maskwright.pretext.objectives.heads import MaskedLanguageModelingHead, ReplacedTokenDetectionHead
from maskwright.training.run_directory import GENERATOR

BATCH_TOKENS = 8192
"""Tokens of a forward pass: enough to keep all cores busy, a few hundred MB for a model of base size."""

_MASKS_AT_ONCE = 512
_FIRST = np.zeros(1, dtype=np.int64)


class TextCut(UserWarning):
    """A text was longer than the model's maximum length and was truncated."""


@final
class Model:
    """A trained encoder with its tokenizer and, if it has them, its heads for masked and for replaced tokens.

    Results are deterministic. In another batch a text's results agree to within rounding (about 1e-6 in fp32).

    Args:
        name: Where it came from, for messages.
        tokenizer: Its tokenizer.
        encoder: The encoder, in evaluation mode.
        mlm_head: The masked language modeling head, if there is one.
        max_length: Maximum sequence length, special tokens included.
        rtd_head: The replaced token detection head (ELECTRA's discriminator), if there is one.
        generator: ELECTRA's generator, which fills masks for a discriminator.
        precision: Of matmuls, from `choose_precision`; the modules' weights are fp32.

    Attributes:
        name, tokenizer, encoder, mlm_head, max_length, rtd_head, generator, precision: As given.
    """

    def __init__(
        self,
        *,
        name: str,
        tokenizer: Tokenizer,
        encoder: Encoder,
        mlm_head: MaskedLanguageModelingHead | None,
        max_length: int,
        rtd_head: ReplacedTokenDetectionHead | None = None,
        generator: "Model | None" = None,
        precision: ProductPrecision = "fp32",
    ) -> None:
        self.name = name
        self.tokenizer = tokenizer
        self.encoder = encoder
        self.mlm_head = mlm_head
        self.max_length = max_length
        self.rtd_head = rtd_head
        self.generator = generator
        self.precision = precision

    def fill_mask(
        self, texts: str | Sequence[str], *, top_k: int = 5, batch_tokens: int = BATCH_TOKENS
    ) -> list[list[list[Filled]]]:
        """Predict the tokens at each mask. Several masks in one text are predicted independently.

        A model without a masked language modeling head uses its generator.

        Args:
            texts: Texts with `[MASK]` or `<mask>` (either form fits any model); a single text is a list.
                Of a text that is too long, the part around its masks is used, with the warning `TextCut`.
            top_k: Tokens for each mask, 1 to the size of the vocabulary.
            batch_tokens: Tokens of a forward pass.

        Returns:
            For each text, for each of its masks in order, the best tokens, best first.

        Raises:
            ConversionError: If the model has no head for masked tokens.
            DataError: If a text has no mask, or masks too far apart to be seen at once.

        Example:
            >>> model = maskwright.load("runs/quickstart")
            >>> for best in model.fill_mask("The [MASK] value is None.")[0][0]:
            ...     print(f"{best.score:.0%} {best.sequence}")
        """
        if self.mlm_head is None:
            if self.generator is not None:
                return self.generator.fill_mask(texts, top_k=top_k, batch_tokens=batch_tokens)
            can = "give vectors" if self.rtd_head is None else "find replaced tokens (`detect`) and give vectors"
            raise ConversionError(
                f"the model {self.name} has no head for masked tokens, it can only {can}",
                todo="Use `embed`, or choose a model that was saved with its masked-language-model head.",
            )
        vocab_size = self.tokenizer.special_tokens.vocab_size
        if not 1 <= top_k <= vocab_size:
            raise MaskwrightError(f"top_k is {top_k}", allowed=f"1 to {vocab_size}, the size of the vocabulary")
        texts = _whole(texts)
        names = ["the text"] if len(texts) == 1 else [f"text {number}" for number in range(1, len(texts) + 1)]
        masked = [
            read_masks(text, name, self.tokenizer, self.max_length) for text, name in zip(texts, names, strict=True)
        ]
        self._warn_of_cuts([text.is_cut for text in masked], "only the part around the masks was read")
        filled: list[list[list[Filled]]] = [[] for _ in texts]
        asked = [text.positions for text in masked]
        with torch.inference_mode():
            for laid, hidden in self._encode([text.ids for text in masked], batch_tokens, asked):
                owners = np.repeat(laid.texts, [len(asked[text]) for text in laid.texts])
                # In blocks, to bound the memory of the logits.
                for first in range(0, len(owners), _MASKS_AT_ONCE):
                    block = slice(first, first + _MASKS_AT_ONCE)
                    scores, ids = best_tokens(self._scores(hidden[block]), top_k, vocab_size)
                    for owner, its_scores, its_ids in zip(owners[block], scores.tolist(), ids.tolist(), strict=True):
                        done = filled[owner]
                        done.append(fill(masked[owner], len(done), its_scores, its_ids, self.tokenizer))
        return filled

    def detect(
        self, texts: str | Sequence[str], *, threshold: float = THRESHOLD, batch_tokens: int = BATCH_TOKENS
    ) -> list[Detection]:
        """Predict which tokens of a text were replaced (Clark et al. 2020).

        Args:
            texts: Any texts; a single text is a list of one. Of a text that is too long the beginning is read, with
                the warning `TextCut`. Written special tokens are ordinary text.
            threshold: Probability from which a token counts as replaced, in [0, 1].
            batch_tokens: Tokens of a forward pass.

        Returns:
            For each text its tokens, each with the probability that it was replaced.

        Raises:
            ConversionError: If the model has no head for replaced tokens.
            MaskwrightError: If the threshold is no probability.

        Example:
            >>> model = maskwright.load("runs/electra")
            >>> [token.token for token in model.detect("The chef ate the meal.")[0].replaced]
            ['ate']
        """
        if self.rtd_head is None:
            raise ConversionError(
                f"the model {self.name} has no head for replaced tokens",
                todo="Choose a model that was trained to detect them: a run of an electra recipe, or an ELECTRA "
                "discriminator (ElectraForPreTraining)",
            )
        if not 0 <= threshold <= 1:
            raise MaskwrightError(f"the threshold is {threshold:g}", allowed="a probability, from 0 to 1")
        texts = _whole(texts)
        special, room = self.tokenizer.special_tokens, self.max_length - 2
        encoded = [self.tokenizer.encode(text) for text in texts]
        self._warn_of_cuts([len(tokens.ids) > room for tokens in encoded], "the rest was left out")
        sequences = [np.concatenate([[special.cls], tokens.ids[:room], [special.sep]]) for tokens in encoded]
        probabilities: list[list[float]] = [[] for _ in texts]
        with torch.inference_mode():
            for laid, hidden in self._encode(sequences, batch_tokens):
                scores = torch.sigmoid(self.rtd_head(hidden).double()).cpu().numpy()
                for text, start in zip(laid.texts, laid.starts, strict=True):
                    # The special tokens at both ends are scored too, but they are not the text's.
                    probabilities[text] = scores[start + 1 : start + len(sequences[text]) - 1].tolist()
        return [
            Detection(text, _judged(tokens, its, threshold, self.tokenizer))
            for text, tokens, its in zip(texts, encoded, probabilities, strict=True)
        ]

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        pooling: Pooling = "mean",
        normalize: bool = False,
        batch_tokens: int = BATCH_TOKENS,
        progress: Progress = no_progress,
    ) -> NDArray[np.float32]:
        """Turn each text into a vector.

        Args:
            texts: Any texts; a single text is a list of one. Of a text that is too long the beginning is
                read, with the warning `TextCut`. Written special tokens are ordinary text.
            pooling: "mean" over all tokens, the special ones included, or the "first" (classification) token.
            normalize: Whether vectors are scaled to length 1, so that a dot product is the cosine.
            batch_tokens: Tokens of a forward pass.
            progress: Called after each forward pass with the tokens done.

        Returns:
            Shape (n, H), float32, in the order of the texts.

        Raises:
            MaskwrightError: If there is no such pooling.
        """
        check_pooling(pooling)
        texts = _whole(texts)
        special, room = self.tokenizer.special_tokens, self.max_length - 2
        tokens = [ids for ids, _ in self.tokenizer.encode_batch(texts)]
        self._warn_of_cuts([len(ids) > room for ids in tokens], "the rest was left out")
        sequences = [np.concatenate([[special.cls], ids[:room], [special.sep]]) for ids in tokens]
        total, done = sum(map(len, sequences)), 0
        vectors = np.empty((len(texts), self.encoder.config.hidden_size), dtype=np.float32)
        asked = [_FIRST] * len(texts) if pooling == "first" else None
        with torch.inference_mode():
            for laid, hidden in self._encode(sequences, batch_tokens, asked):
                pooled = hidden if pooling == "first" else mean_of_tokens(hidden, laid.batch)
                if normalize:
                    pooled = torch.nn.functional.normalize(pooled)
                vectors[laid.texts] = pooled.cpu().numpy()
                done += laid.batch.num_tokens
                progress("embedding", done, total)
        return vectors

    @functools.cached_property
    def _states(self) -> States:
        return states_of(self.encoder, self.precision)

    @functools.cached_property
    def _scores(self) -> Scores:
        assert self.mlm_head is not None
        return scores_of(self.mlm_head, self.encoder, self.precision)

    def _encode(
        self, sequences: list[IntArray], batch_tokens: int, asked: list[IntArray] | None = None
    ) -> Iterator[tuple[TextBatch, Tensor]]:
        """Yield batches with the hidden states of all slots, or of the positions asked for in each text, in order."""
        device = self.encoder.word_embeddings.weight.device
        for laid in batches(sequences, tokens=batch_tokens, device=device):
            if asked is None:
                yield laid, self._states(laid.batch)
            else:
                slots = [start + asked[text] for text, start in zip(laid.texts, laid.starts, strict=True)]
                yield laid, self._states(laid.batch, torch.from_numpy(np.concatenate(slots)).to(device))

    def _warn_of_cuts(self, is_cut: list[bool], effect: str) -> None:
        cut = [str(number) for number, was in enumerate(is_cut, start=1) if was]
        if cut:
            which = ", ".join(cut[:10]) + (", ..." if len(cut) > 10 else "")
            warnings.warn(
                f"{len(cut)} of {len(is_cut)} texts have more than the {self.max_length} tokens that "
                f"{self.name} reads at once; {effect} (texts {which})",
                TextCut,
                stacklevel=3,
            )


def load(model: str | Path, *, device: str = "auto", precision: Precision = "fp32") -> Model:
    """Load a model for use, without dropout. No code of the folder is executed.

    Args:
        model: A run's folder, any folder of a BERT, RoBERTa, ALBERT, ELECTRA, DistilBERT or ERNIE 1.0 in Hugging
            Face's format, or such a hub name. A generator in the folder's sub-folder "generator" comes with it.
        device: Where to compute: "cpu", "cuda", "cuda:N"; "auto" takes a GPU if there is one.
        precision: What matrices are multiplied in: "fp32", exactly; "bf16" or "int8" (on a processor), faster and
            rounded; "auto" is bf16 on a GPU that has it. Where the device has no fast way to do what is asked, it is
            fp32, with the warning `PrecisionChanged`.

    Raises:
        MaskwrightError: If there is no such precision.
        ConversionError: If there is no such model, or it does not fit together.
        DataError: If its tokenizer cannot be read.
        DeviceError: If the device is not there.

    Example:
        >>> model = maskwright.load("runs/quickstart")
        >>> model.embed(["A first text.", "A second one."]).shape
        (2, 256)
    """
    place = choose_device(device)
    chosen = choose_precision(precision, place)
    loaded = load_model(model)
    tokenizer = Tokenizer.from_folder(loaded.folder)
    if tokenizer.special_tokens.vocab_size > loaded.vocab_size:
        raise ConversionError(
            f"the tokenizer in {loaded.folder} has {tokenizer.special_tokens.vocab_size} entries, the "
            f"weights beside it have embeddings for {loaded.vocab_size}",
            todo="Use the tokenizer that the model was trained with",
        )
    shape = loaded.config.head_shape(loaded.vocab_size)
    with torch.device("meta"):  # The weights are put in as they are; drawing random ones first would cost seconds.
        encoder = Encoder(loaded.config, loaded.vocab_size)
        mlm_head = MaskedLanguageModelingHead(shape) if "mlm" in loaded.heads else None
        rtd_head = ReplacedTokenDetectionHead(shape) if "rtd" in loaded.heads else None
    _fill_in(encoder, "encoder.", loaded)
    if mlm_head is not None:
        _fill_in(mlm_head, "heads.mlm.", loaded)
        mlm_head.to(place).eval()
    if rtd_head is not None:
        _fill_in(rtd_head, "heads.rtd.", loaded)
        rtd_head.to(place).eval()
    beside = loaded.folder / GENERATOR
    return Model(
        name=str(model),
        tokenizer=tokenizer,
        encoder=encoder.to(place).eval(),
        mlm_head=mlm_head,
        max_length=loaded.max_length,
        rtd_head=rtd_head,
        generator=load(beside, device=device, precision=chosen) if (beside / "config.json").is_file() else None,
        precision=chosen,
    )


def _judged(encoded: Encoded, probabilities: list[float], threshold: float, tokenizer: Tokenizer) -> tuple[Judged, ...]:
    return tuple(
        Judged(
            token=tokenizer.token_text(int(id)),
            token_id=int(id),
            start=int(start),
            end=int(end),
            probability=probability,
            replaced=probability >= threshold,
        )
        # A text that was cut has more tokens than were scored.
        for id, (start, end), probability in zip(encoded.ids, encoded.offsets, probabilities, strict=False)
    )


def _fill_in(module: torch.nn.Module, prefix: str, loaded: LoadedModel) -> None:
    own = {name.removeprefix(prefix): tensor for name, tensor in loaded.state.items() if name.startswith(prefix)}
    module.load_state_dict(own, assign=True)


def _whole(texts: str | Sequence[str]) -> list[str]:
    """Return the texts as a list, a single one too; half a character in one is refused."""
    listed = [texts] if isinstance(texts, str) else list(texts)
    for number, text in enumerate(listed, start=1):
        if half := told_half_character(text):
            raise DataError(f"text {number}: {half}", todo="Give whole characters, as UTF-8.")
    return listed
