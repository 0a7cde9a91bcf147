"""Measurements of a trained model in a study, beside fine-tuning. Every probe is the same for all models.

masked words   words of the held-out text, chosen by a key, are masked whole; the model's loss and accuracy at their
               tokens, and per word, so that vocabularies compare: a word's loss is the sum over its tokens, and it is
               right if all its tokens are.
minimal pairs  share of pairs in which the grammatical sentence has the higher pseudo-log-likelihood: the sum of the log
               probabilities of its tokens, each masked alone (Salazar et al. 2020). Equal scores count half.
cost           parameters, FLOPs, memory, disk, and measured speed.

controls       the unigram model of the training text, and an untrained model of the same shape.

A model without a vocabulary head is measured by its generator's, if it has one (ELECTRA).
"""

import re
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.checkpoints.weight_files import WEIGHTS
from maskwright.core.errors import DataError, MaskwrightError
from maskwright.core.randomness import generator
from maskwright.core.spec import fingerprint
from maskwright.core.storage.checksums import read_record
from maskwright.core.storage.files import parse_json, read_json
from maskwright.core.types import IntArray
from maskwright.data.files import decompressed, lines_in, reading
from maskwright.data.scripts import WORD
from maskwright.data.shards.corpus import Corpus, sample_sentences
from maskwright.data.words.word_vectors import TOKEN_VECTOR_SAMPLE, token_vectors
from maskwright.inference.long_texts import TruncationWarning
from maskwright.inference.model import Model
from maskwright.inference.show import show
from maskwright.model.sizes import flops_per_token
from maskwright.recipes.catalog import resolve
from maskwright.recipes.sizing import sizes, training_flops_per_token
from maskwright.study.text import PASSAGE_BYTES, StudyText
from maskwright.training.runs.checkpoint import save_models, save_tokenizer
from maskwright.training.steps.evaluation import log_shares
from maskwright.training.steps.model import build_model

MASKED_SHARE = 0.15
PASSAGES = 800
GROUPS = 20
"""Groups of examples whose means are kept, for intervals over examples."""
_PASSAGES_SHOWN = 6
UNTRAINED = "untrained"
_CONTROL_SEED = 0
WORDS = re.compile(WORD)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One number that a probe found.

    Attributes:
        count: Examples behind it; 0 where there are none (parameters).
        groups: The same over groups of examples; empty if it has none.
        by: Where it came from, if models differ in that: "head", "probe" or "generator".
        chance: What uniform guessing gives, or the most frequent class; None where there is no such thing.
        unigram: What the unigram model of the training text gives, for masked words.
    """

    value: float
    count: int = 0
    groups: tuple[float, ...] = ()
    by: str = ""
    chance: float | None = None
    unigram: float | None = None


Measurements = dict[str, Measurement]


def mean_of(values: Floats, by: str = "", *, chance: float | None = None, unigram: float | None = None) -> Measurement:
    groups = [float(values[number::GROUPS].mean()) for number in range(GROUPS)] if len(values) >= 2 * GROUPS else []
    mean = float(values.mean())
    return Measurement(value=mean, count=len(values), groups=tuple(groups), by=by, chance=chance, unigram=unigram)


def embed_texts(model: Model, texts: Sequence[str]) -> Floats:
    with warnings.catch_warnings(action="ignore", category=TruncationWarning):
        return model.embed(texts).astype(np.float64)


def log_probabilities(
    model: Model, sequences: Sequence[IntArray], positions: Sequence[IntArray], labels: Sequence[IntArray]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the log probabilities of tokens, and whether each is the most probable one, text after text.

    Args:
        model: With a vocabulary head.
        sequences: Token ids with special tokens, masks in place.
        positions, labels: Where to predict in each sequence, and the tokens there.
    """
    wanted = torch.from_numpy(np.concatenate(labels).astype(np.int64))
    log_probs, right = np.zeros(len(wanted)), np.zeros(len(wanted), dtype=np.bool_)
    for indices, scores in model.token_scores(sequences, positions):
        chosen = scores.gather(1, wanted[indices, None].to(scores.device))[:, 0]
        log_probs[indices] = (chosen - scores.logsumexp(dim=1)).double().cpu().numpy()
        right[indices] = (chosen >= scores.amax(dim=1)).cpu().numpy()
    return log_probs, right


def _with_vocabulary(model: Model) -> tuple[Model, str] | None:
    if "mlm" in model.heads:
        return model, "head"
    return None if model.generator is None else (model.generator, "generator")


def masked_words(model: Model, text: StudyText, token_counts: IntArray | None = None) -> Measurements:
    """Measure loss (nats) and accuracy at masked words of the held-out text; nothing without a vocabulary head.

    `token_counts` are those of the training text, shape (V,), for the unigram model.
    """
    if (chosen := _with_vocabulary(model)) is None:
        return {}
    scorer, by = chosen
    special, limit = scorer.tokenizer.special_tokens, scorer.max_length - 2
    sequences, positions, labels, owners = [], [], [], []
    num_words = 0
    for number, (_, passage) in enumerate(text.passages(PASSAGES)):
        encoded = scorer.tokenizer.encode(passage)
        words = [match.span() for match in WORDS.finditer(passage)]
        picked = generator(0, "study masks", 0, number).random(len(words)) < MASKED_SHARE
        word_of = np.full(len(encoded.ids), -1)
        for start, end in (word for word, is_picked in zip(words, picked, strict=True) if is_picked):
            word_of[(encoded.offsets[:, 0] < end) & (encoded.offsets[:, 1] > start)] = num_words
            num_words += 1
        ids = np.where(word_of >= 0, special.mask, encoded.ids)
        for first in range(0, len(ids), limit):  # More than one window only where a tokenizer needs very many tokens.
            masked = np.flatnonzero(word_of[first : first + limit] >= 0)
            if len(masked):
                sequences.append(np.concatenate([[special.cls], ids[first : first + limit], [special.sep]]))
                positions.append(masked + 1)
                labels.append(encoded.ids[first + masked])
                owners.append(word_of[first + masked])
    log_probs, right = log_probabilities(scorer, sequences, positions, labels)
    wanted, owner = np.concatenate(labels), np.concatenate(owners)

    def values(losses: Floats, right: NDArray[np.bool_]) -> dict[str, Floats]:
        right = right & (wanted != special.unk)  # An unknown token is no prediction of its word.
        return {
            "word_loss": np.bincount(owner, losses, minlength=num_words).astype(np.float64),
            "word_accuracy": (np.bincount(owner, ~right, minlength=num_words) == 0).astype(np.float64),
            "token_loss": losses,
            "token_accuracy": right.astype(np.float64),
        }

    # Uniform guessing is right once in V tokens, so of hardly any word.
    size, nowhere = special.vocab_size, np.zeros(len(wanted), dtype=np.bool_)
    chance = values(np.full(len(wanted), np.log(size)), nowhere)
    unigram: dict[str, Floats] = {}
    if token_counts is not None:
        unigram = values(-log_shares(token_counts)[wanted], wanted == token_counts.argmax())
    return {
        name: mean_of(
            each,
            by,
            chance=float(chance[name].mean()),
            unigram=float(unigram[name].mean()) if unigram else None,
        )
        for name, each in values(-log_probs, right).items()
    }


def read_minimal_pairs(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Read minimal pairs (grammatical, ungrammatical) by paradigm.

    From a file or a folder of `.jsonl` or `.jsonl.gz` files in BLiMP's format (`sentence_good`, `sentence_bad`); a file
    is a paradigm. Raises DataError if there is no such file or a line is not such a record.
    """
    files = sorted(each for each in path.iterdir() if ".jsonl" in each.suffixes) if path.is_dir() else [path]
    pairs = {}
    for file in files:
        try:
            with reading(file) as raw:
                lines = lines_in(decompressed(raw, file), str(file))
                records = [parse_json(line) for line in lines if line.strip()]
            pairs[file.name.partition(".")[0]] = [(each["sentence_good"], each["sentence_bad"]) for each in records]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"cannot read minimal pairs from {file}: {error!r}",
                allowed='.jsonl or .jsonl.gz, each line an object with "sentence_good" and "sentence_bad" (BLiMP)',
            ) from error
    if not any(pairs.values()):
        raise DataError(f"{path} has no minimal pairs", allowed="a folder of .jsonl or .jsonl.gz files")
    return pairs


def pseudo_log_likelihoods(model: Model, sentences: Sequence[str]) -> Floats:
    """Return the sum over its tokens of each one's log probability when it alone is masked (Salazar et al. 2020)."""
    special = model.tokenizer.special_tokens
    sequences, positions, labels = list[IntArray](), list[IntArray](), list[IntArray]()
    owners: list[int] = []
    for number, ids in enumerate(model.tokenizer.encode_batch(sentences)):
        whole = np.concatenate([[special.cls], ids[: model.max_length - 2], [special.sep]])
        copies = np.tile(whole, (len(whole) - 2, 1))
        where = np.arange(1, len(whole) - 1)
        copies[where - 1, where] = special.mask
        sequences.extend(copies)
        positions.extend(where[:, None])
        labels.extend(whole[where, None])
        owners.extend([number] * len(where))
    log_probs, _ = log_probabilities(model, sequences, positions, labels)
    return np.bincount(owners, log_probs, minlength=len(sentences)).astype(np.float64)


def minimal_pairs(
    model: Model, path: Path, progress: Callable[[int, int], None] = lambda done, total: None
) -> Measurements:
    """Return the mean accuracy over paradigms ("minimal_pairs") and each one's; nothing without a vocabulary head."""
    if (chosen := _with_vocabulary(model)) is None:
        return {}
    scorer, by = chosen
    paradigms, measurements = read_minimal_pairs(path), {}
    for number, (name, pairs) in enumerate(paradigms.items()):
        progress(number, len(paradigms))
        scores = pseudo_log_likelihoods(scorer, [sentence for pair in pairs for sentence in pair])
        good, bad = scores[::2], scores[1::2]
        tokens = [ids.tolist() for ids in scorer.tokenizer.encode_batch([each for pair in pairs for each in pair])]
        # Sentences of the same tokens, which differ in case for example, have the same score up to rounding.
        equal = (good == bad) | [a == b for a, b in zip(tokens[::2], tokens[1::2], strict=True)]
        measurements[name] = mean_of(np.where(equal, 0.5, good > bad), by, chance=0.5)
    every = list(measurements.values())
    groups = np.mean([each.groups for each in every], axis=0) if all(each.groups for each in every) else []
    mean, count = statistics.fmean(each.value for each in every), sum(each.count for each in every)
    total = Measurement(value=mean, count=count, groups=tuple(map(float, groups)), by=by, chance=0.5)
    return {"minimal_pairs": total, **measurements} if len(measurements) > 1 else {"minimal_pairs": total}


def cost(model: Model, text: StudyText, run: Path) -> Measurements:
    """Measure parameters, FLOPs per token, speed, memory and disk."""
    recipe, result = resolve(str(run / "recipe.json")), read_record(run / "run.json")["result"]
    length, vocabulary = recipe.training.max_length, recipe.tokenizer.vocab_size
    passages = [passage[: PASSAGE_BYTES // 3] for _, passage in text.passages(32)]
    values: dict[str, float] = {
        "parameters": sum(each.numel() for each in model.encoder.parameters()),
        "training_flops_per_token": training_flops_per_token(recipe, vocabulary, length=length),
        "inference_flops_per_token": flops_per_token(recipe.encoder, length=length) / 3,
        "training_memory": sum(sizes(recipe).memory.values()),
        "size_on_disk": (run / WEIGHTS).stat().st_size,
        "training_tokens_per_second": result["tokens"] / max(result["seconds"], 1e-9),
        "latency_batch_1": _seconds(lambda: embed_texts(model, passages[:1])),
        "latency_batch_32": _seconds(lambda: embed_texts(model, passages)),
    }
    return {name: Measurement(value=float(value)) for name, value in values.items()}


def _seconds(call: Callable[[], object], repeats: int = 50, limit: float = 10.0) -> float:
    """Return the median time of a call, after one that is not timed; fewer than `repeats` after `limit` seconds."""
    call()
    times: list[float] = []
    while not times or (len(times) < repeats and sum(times) < limit):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def samples(model: Model, text: StudyText, run: Path) -> dict[str, Any]:
    """Return what the recipe masks in a held-out passage and how the model fills masks, for the report."""
    opening = "\n\n".join("".join(sentences[:4]) for sentences in text.documents[:2])
    shown = show(str(run), opening, max_sequences=1)
    masks = [
        {"seen": token.seen, "original": token.original, "change": token.change}
        for token in (shown.sequences[0].tokens if shown.sequences else ())
    ]
    fills = []
    for number, (_, passage) in enumerate(text.passages(_PASSAGES_SHOWN, 160) if _with_vocabulary(model) else ()):
        words = [match for match in WORDS.finditer(passage) if len(match.group()) > 3 or not match.group().isascii()]
        if not words:
            continue
        word = words[int(generator(0, "study fills", 0, number).integers(len(words)))]
        with warnings.catch_warnings(action="ignore"):
            try:
                best = model.fill_mask(f"{passage[: word.start()]}[MASK]{passage[word.end() :]}", top_k=3)[0][0]
            except MaskwrightError:  # The passage itself has a written mask, or is longer than the model reads.
                continue
        fills.append(
            {
                "before": passage[: word.start()],
                "word": word.group(),
                "after": passage[word.end() :],
                "filled": [{"token": each.token.strip(), "score": each.score} for each in best],
            }
        )
    return {"masks": masks, "fills": fills}


def shape_of(run: Path) -> str:
    """Identify what the untrained model of a run depends on: its shape, heads, initialization and tokenizer."""
    recipe = resolve(str(run))
    parts = [recipe.family, recipe.encoder, recipe.generator, recipe.objectives, recipe.training.max_length]
    return fingerprint([*parts, read_json(run / "tokenizer.json")])


def save_untrained(run: Path, corpus: Corpus, folder: Path) -> None:
    """Save the model that a run on this corpus begins with, under another seed."""
    recipe, tokenizer = resolve(str(run)), corpus.tokenizer()
    model = build_model(recipe, len(corpus.token_counts))
    vectors = None
    if recipe.encoder.initial_embeddings == "cooccurrence":
        tokens, ends = sample_sentences((corpus.documents,), (1.0,), corpus.gather, TOKEN_VECTOR_SAMPLE)
        vectors = token_vectors(tokens.ids, ends, len(corpus.token_counts))
    model.initialize(_CONTROL_SEED, corpus.token_counts, vectors)
    save_models(folder, recipe, model, tokenizer.special_tokens)
    save_tokenizer(folder, recipe, tokenizer)
