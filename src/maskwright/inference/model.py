"""`maskwright.load`: a trained model that fills masks, detects replaced tokens and embeds texts."""

import functools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from maskwright.checkpoints.checkpoint import Checkpoint, EncoderWithHeads, read_checkpoint
from maskwright.checkpoints.sentence_folder import Pooling, SentenceModules
from maskwright.core.errors import ConversionError, DataError, MaskwrightError, unknown_name
from maskwright.core.ranges import Ranges, cut_windows
from maskwright.core.tensors import mean_of_tokens
from maskwright.core.text.surrogates import surrogate_problem
from maskwright.core.types import IntArray, MatmulPrecision
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.inference.batches import TextEncoder, check_finite
from maskwright.inference.detect import THRESHOLD, Detection, detection
from maskwright.inference.embed import choose_dimensions
from maskwright.inference.fill_mask import MaskPrediction, best_tokens, fill, read_masks
from maskwright.inference.long_texts import IGNORED, WINDOWS_HINT, choose_length, warn_truncated
from maskwright.inference.precision import Precision, choose_precision
from maskwright.machine.devices import choose_device
from maskwright.machine.threads import threads_of_head
from maskwright.pretext.objectives.mlm import MaskedLanguageModeling
from maskwright.reporting.reporter import Progress, no_progress
from maskwright.training.ranks.device import multiplies_bf16

_SCORED_AT_ONCE = 512
_SMALLEST_NORM = 1e-12  # As in `torch.nn.functional.normalize`.
_FIRST = np.zeros(1, dtype=np.int64)


class UntrainedHead(UserWarning):
    """The weights of a head look newly initialized, so its predictions are random."""


@dataclass(eq=False, kw_only=True, repr=False)
class Model(EncoderWithHeads):
    """A trained encoder with its heads and its tokenizer.

    Results are deterministic. In another batch a text's results agree to within rounding (about 1e-6 in fp32).

    Attributes:
        name: Where it was loaded from, for messages.
        heads: Pretraining heads, if any, among "mlm", "rtd" (of an ELECTRA discriminator), "nsp" and "sop".
        max_length: Maximum sequence length, special tokens included.
        generator: ELECTRA's generator, which fills masks for a discriminator.
        precision: Of matmuls, from `choose_precision`. The modules' weights are fp32.
        modules: How a folder of sentence-transformers makes embeddings.
    """

    name: str
    tokenizer: Tokenizer
    max_length: int
    generator: "Model | None" = None
    precision: MatmulPrecision = "fp32"
    modules: SentenceModules = field(default_factory=SentenceModules)

    def __repr__(self) -> str:
        config, vocab_size = self.encoder.config, self.tokenizer.special_tokens.vocab_size
        return (
            f"<{type(self).__name__} {self.name}: {config.num_layers} layers of {config.hidden_size}, vocabulary of "
            f"{vocab_size:,}, up to {self.max_length} tokens; {self._purpose()}; "
            f"{self.encoder.word_embeddings.weight.device}, {self.precision}>"
        )

    def _purpose(self) -> str:
        generator = () if self.generator is None else ("generator",)
        return f"heads: {', '.join((*self.heads, *generator)) or 'none'}"

    def predict(self, inputs: Any = (), **options: Any) -> Any:
        """Raise ConversionError: only a fine-tuned model predicts (`maskwright.predict` has the arguments)."""
        return self.with_task()

    def with_task(self) -> Any:
        """Return the model with its task head; raise ConversionError, since this one was not fine-tuned."""
        raise ConversionError(
            f"the model {self.name} is a pretrained model, not a fine-tuned one",
            hint=f"Fine-tune it: `maskwright finetune {self.name} --task ...`. For masked tokens use `fill_mask`.",
        )

    def fill_mask(self, texts: str | Sequence[str], *, top_k: int = 5) -> list[list[list[MaskPrediction]]]:
        """Predict the tokens at each mask. Several masks in one text are predicted independently.

        A model without a masked language modeling head uses its generator.

        Args:
            texts: Texts with `[MASK]` or `<mask>` (both work for any model). Of a text that is too long, the part
                around its masks is used, with a `TruncationWarning`.
            top_k: Tokens for each mask, 1 to the size of the vocabulary.

        Returns:
            For each text, for each of its masks in order, the best tokens, best first.

        Raises:
            ConversionError: If the model has no head for masked tokens.
            DataError: If a text has no mask, or masks too far apart for one sequence.

        Examples:
            >>> model = maskwright.load("runs/quickstart")
            >>> for best in model.fill_mask("The [MASK] value is None.")[0][0]:
            ...     print(f"{best.score:.0%} {best.sequence}")
        """
        if "mlm" not in self.heads:
            if self.generator is not None:
                return self.generator.fill_mask(texts, top_k=top_k)
            others = "`embed` or `detect`" if "rtd" in self.heads else "`embed`"
            raise ConversionError(
                f"the model {self.name} has no head for masked tokens",
                hint=f"Use {others}, or choose a model that was saved with its masked language modeling head.",
            )
        vocab_size = self.tokenizer.special_tokens.vocab_size
        if not 1 <= top_k <= vocab_size:
            raise MaskwrightError(f"top_k is {top_k}", allowed=f"1 to {vocab_size}, the size of the vocabulary")
        self._warn_if_untrained(self.heads["mlm"], "masked language modeling")
        texts = _listed(texts)
        names = ["the text"] if len(texts) == 1 else [f"text {number}" for number in range(1, len(texts) + 1)]
        masked = [
            read_masks(text, name, self.tokenizer, self.max_length) for text, name in zip(texts, names, strict=True)
        ]
        truncated = [number for number, text in enumerate(masked) if text.is_truncated]
        self._warn_truncated(truncated, len(texts), self.max_length, "only the part around the masks is used")
        sequences, positions = [text.ids for text in masked], [text.positions for text in masked]
        by_mask: dict[int, tuple[list[float], list[int]]] = {}
        for masks, logits in self.token_scores(sequences, positions):
            scores, ids = best_tokens(logits, top_k, vocab_size)
            check_finite(scores.numpy())
            by_mask.update(zip(masks.tolist(), zip(scores.tolist(), ids.tolist(), strict=True), strict=True))
        best = iter(sorted(by_mask.items()))
        return [
            [fill(text, number, *next(best)[1], self.tokenizer) for number in range(len(text.positions))]
            for text in masked
        ]

    def detect(self, texts: str | Sequence[str], *, threshold: float = THRESHOLD) -> list[Detection]:
        """Predict which tokens of a text were replaced (Clark et al. 2020).

        Args:
            texts: Of a text that is too long, the beginning is used, with a `TruncationWarning`. Special tokens
                written in a text are ordinary text.
            threshold: Probability from which a token counts as replaced, in [0, 1].

        Returns:
            For each text its tokens, each with the probability that it was replaced.

        Raises:
            ConversionError: If the model has no head for replaced tokens.
            MaskwrightError: If the threshold is not a probability.

        Examples:
            >>> model = maskwright.load("runs/electra")
            >>> [token.token for token in model.detect("The chef ate the meal.")[0].replaced]
            ['ate']
        """
        if "rtd" not in self.heads:
            raise ConversionError(
                f"the model {self.name} has no head for replaced tokens",
                hint="Choose a model that was trained to detect them: a run of an electra recipe, or an ELECTRA "
                "discriminator (ElectraForPreTraining)",
            )
        if not 0 <= threshold <= 1:
            raise MaskwrightError(f"the threshold is {threshold:g}", allowed="a probability, from 0 to 1")
        self._warn_if_untrained(self.heads["rtd"], "replaced token detection")
        texts = _listed(texts)
        encoded = [self.tokenizer.encode(text) for text in texts]
        sequences, _ = self._sequences([tokens.ids for tokens in encoded], self.max_length)
        probabilities: list[list[float]] = [[] for _ in texts]
        with torch.inference_mode():
            for batch, hidden in self.texts.encode(sequences):
                with threads_of_head(hidden, hidden.shape[1]):
                    scores = torch.sigmoid(self.heads["rtd"](hidden).double()).cpu().numpy()
                check_finite(scores)
                for text, start in zip(batch.texts, batch.starts, strict=True):
                    # Without the special tokens at both ends.
                    probabilities[text] = scores[start + 1 : start + len(sequences[text]) - 1].tolist()
        return [
            detection(text, tokens, of_tokens, threshold, self.tokenizer)
            for text, tokens, of_tokens in zip(texts, encoded, probabilities, strict=True)
        ]

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        max_length: int | None = None,
        windows: bool = False,
        dimensions: int | None = None,
        progress: Progress = no_progress,
    ) -> NDArray[np.float32]:
        """Compute one embedding per text, shape (n, H), in the order of the texts.

        After the pooling of a folder of sentence-transformers its linear layer follows, if it has one; H is then that
        layer's width.

        Args:
            texts: As for `detect`.
            pooling, normalize, max_length, windows: As for `maskwright.embed`. The mean is of all tokens, special ones
                included.
            dimensions: How many leading dimensions to keep, before embeddings are normalized; None for what a folder of
                sentence-transformers says (`truncate_dim`, after its normalization), else all. Warns
                (`UntrainedDimensions`) if the model was not trained for this number.
            progress: Called after each forward pass with the tokens done.

        Raises:
            MaskwrightError: If the pooling is unknown, that of the folder is unsupported, or the model has fewer
                positions than `max_length` or fewer dimensions than `dimensions`.
        """
        normalize_first = dimensions is None and normalize is None  # As sentence-transformers does.
        pooling, normalize = self.pooled_as(pooling, normalize)
        texts = _listed(texts)
        longest = choose_length(max_length, self.max_length, self.encoder.config.max_positions, self.name)
        encoded = self.tokenizer.encode_batch(texts)
        sequences, of_text = self._sequences(encoded, longest, windows=windows, hint=WINDOWS_HINT)
        tokens = np.array([len(ids) for ids in sequences], dtype=np.int64)
        shares = tokens / np.bincount(of_text, tokens)[of_text] if windows else None
        total, done = int(tokens.sum()), 0
        dense = self.modules.dense_after(pooling)
        width = self.encoder.config.hidden_size if dense is None else dense.out_features
        kept = choose_dimensions(dimensions, self.modules, width, self.name)
        vectors = np.zeros((len(texts), width), dtype=np.float32)
        positions = [_FIRST] * len(sequences) if pooling == "first" else None
        with torch.inference_mode():
            for batch, hidden in self.texts.encode(sequences, positions):
                pooled = hidden if pooling == "first" else mean_of_tokens(hidden, batch.batch)
                if dense is not None:
                    with threads_of_head(pooled, width):
                        pooled = dense(pooled)
                of_sequences = pooled.cpu().numpy()
                check_finite(of_sequences)
                if shares is None:
                    vectors[batch.texts] = of_sequences
                else:
                    np.add.at(vectors, of_text[batch.texts], of_sequences * shares[batch.texts, None])
                done += batch.batch.num_tokens
                progress("embedding (tokens)", done, total)
        if not normalize_first:
            vectors = vectors[:, :kept]
        if normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _SMALLEST_NORM)
        return vectors[:, :kept]

    def pooled_as(self, pooling: Pooling | None, normalize: bool | None) -> tuple[Pooling, bool]:
        """Return pooling and normalization of `embed`: the given ones, or those of the folder."""
        if pooling is None:
            self.modules.check(self.name)
        elif pooling not in get_args(Pooling):
            raise unknown_name(MaskwrightError, "pooling", pooling, get_args(Pooling))
        return pooling or self.modules.pooling, self.modules.normalize if normalize is None else normalize

    def token_scores(
        self,
        sequences: Sequence[IntArray],
        positions: Sequence[IntArray],
        *,
        segments: Sequence[IntArray] | None = None,
    ) -> Iterator[tuple[IntArray, Tensor]]:
        """Yield the scores of the vocabulary at positions of token ids, in blocks, to bound their memory.

        The model has a masked language modeling head. A block is the indices of its positions, counted through all
        texts, shape (M,), and their scores in fp32, (M, V).
        """
        for _, indices, hidden in self.texts.encode_positions(sequences, positions, segments=segments):
            for first in range(0, len(indices), _SCORED_AT_ONCE):
                block = slice(first, first + _SCORED_AT_ONCE)
                yield indices[block], self._scores(hidden[block])

    @functools.cached_property
    def texts(self) -> TextEncoder:
        """The encoder of many texts, also for a task head: weights are converted to the precision once."""
        return TextEncoder(self.encoder, self.precision)

    @functools.cached_property
    def _score_matrix(self) -> Tensor:
        # Converted once: at one position, reading it takes most of the time. int8 models score in bf16 where they can.
        matrix = self.encoder.word_embeddings.weight
        in_half = self.precision == "bf16" or (self.precision == "int8" and multiplies_bf16(matrix.device))
        return matrix.to(torch.bfloat16) if in_half else matrix

    @torch.inference_mode()
    def _scores(self, hidden: Tensor) -> Tensor:
        in_half = self._score_matrix.dtype == torch.bfloat16
        autocast = torch.autocast(hidden.device.type, torch.bfloat16, enabled=in_half)
        with threads_of_head(hidden, len(self._score_matrix)), autocast:
            return MaskedLanguageModeling().logits(self.heads["mlm"], hidden, self._score_matrix).float()

    def _sequences(
        self, encoded: Sequence[IntArray], max_length: int, *, windows: bool = False, hint: str = ""
    ) -> tuple[list[IntArray], IntArray]:
        """Return token ids with special tokens, and the text of each sequence: one a text, truncated, or windows."""
        special, longest = self.tokenizer.special_tokens, max_length - 2
        lengths = np.array([len(ids) for ids in encoded], dtype=np.int64)
        texts = Ranges(np.zeros_like(lengths), lengths)
        if windows:
            of_text, parts = cut_windows(texts, np.full_like(lengths, longest))
        else:
            of_text, parts = np.arange(len(lengths)), texts.first(np.asarray(longest))
            truncated = np.flatnonzero(lengths > longest).tolist()
            self._warn_truncated(truncated, len(lengths), max_length, IGNORED, hint)
        sequences = [
            np.concatenate([[special.cls], encoded[text][start:end], [special.sep]])
            for text, start, end in zip(of_text, parts.starts, parts.ends, strict=True)
        ]
        return sequences, of_text

    def _warn_truncated(self, texts: Sequence[int], count: int, max_length: int, effect: str, hint: str = "") -> None:
        limit = f"more than {max_length} tokens, the maximum of {self.name}"
        warn_truncated(texts, count, limit, effect, hint=hint, stacklevel=4)

    def _warn_if_untrained(self, head: nn.Module, kind: str) -> None:
        # Libraries initialize biases to zero; training changes all of them.
        if not any(parameter.any() for name, parameter in head.named_parameters() if name.endswith("bias")):
            warnings.warn(
                f"the {kind} head of {self.name} looks newly initialized (all biases are zero), so its predictions are "
                "random. If the folder was converted, convert it again with the class that config.json of the original "
                "names under architectures",
                UntrainedHead,
                stacklevel=3,
            )


def load(model: str | Path | Checkpoint, *, device: str = "auto", precision: Precision = "fp32") -> Model:
    """Load a pretrained model, or one that was read: `maskwright.load` without task heads."""
    location = choose_device(device)
    chosen = choose_precision(precision, location)
    checkpoint = model if isinstance(model, Checkpoint) else read_checkpoint(model)
    built = inference_model(checkpoint, location, chosen)
    if checkpoint.generator is not None:
        built.generator = load(checkpoint.generator, device=device, precision=chosen)
    return built


def inference_model(checkpoint: Checkpoint, device: torch.device, precision: MatmulPrecision) -> Model:
    """Build a model that was read, without its generator."""
    tokenizer, modules = checkpoint.tokenizer, checkpoint.modules
    if modules.dense is not None:
        modules.dense.to(device)
    built = checkpoint.build().to(device)
    return Model(
        name=checkpoint.name,
        tokenizer=tokenizer,
        encoder=built.encoder,
        heads=built.heads,
        max_length=checkpoint.max_length,
        modules=modules,
        precision=precision,
    )


def _listed(texts: str | Sequence[str]) -> list[str]:
    """Return the texts as a list, also a single one; DataError for lone surrogates, which no tokenizer accepts."""
    listed = [texts] if isinstance(texts, str) else list(texts)
    for number, text in enumerate(listed, start=1):
        if problem := surrogate_problem(text):
            raise DataError(f"text {number}: {problem}", hint="Give whole characters, as UTF-8.")
    return listed
