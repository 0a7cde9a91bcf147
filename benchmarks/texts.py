"""Made text of any size: deterministic, with token frequencies and lengths like those of real text.

Each entry of the vocabulary is a word, so a text of n words is n tokens for every library. Ids follow Zipf's law with
Mandelbrot's offset: a step then touches as many embedding rows as with real text.
"""

import csv
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_MANDELBROT = 2.7
_LETTERS = "etaoinshrdlucmfwypvbgkjqxz"

Lengths = NDArray[np.int64]


def natural_lengths(count: int, longest: int = 128, *, seed: int = 0) -> Lengths:
    """Sample log-normal lengths in tokens, special tokens included, cut at `longest`.

    Mean 61.6 at 128, an eighth cut: a batch padded to 128 has a non-padding fraction of .48, as articles and comments
    have.
    """
    scale = longest / 128
    sampled = np.exp(np.random.default_rng([seed, 1]).normal(np.log(52.0 * scale), 0.8, count))
    return np.clip(np.rint(sampled), 8, longest).astype(np.int64)


def sample_ids(count: int, vocabulary: int, *, seed: int = 0) -> NDArray[np.int64]:
    """Sample ids of ordinary tokens, frequent ones first. Shape (count,)."""
    weights = 1 / (np.arange(vocabulary - len(SPECIAL)) + 1 + _MANDELBROT)
    bounds = np.cumsum(weights / weights.sum())
    sampled = np.searchsorted(bounds, np.random.default_rng([seed, 2]).random(count), side="right")
    return len(SPECIAL) + np.minimum(sampled, len(bounds) - 1)


def word(id: int) -> str:
    """Return the word of an id, in letters only."""
    letters, rest = "q", id
    while rest:
        rest, letter = divmod(rest, len(_LETTERS))
        letters += _LETTERS[letter]
    return letters


def texts(lengths: Lengths, vocabulary: int, *, seed: int = 0) -> list[str]:
    """Make texts that are so many tokens long, with [CLS] and [SEP]."""
    sizes = lengths - 2
    ids = sample_ids(int(sizes.sum()), vocabulary, seed=seed)
    return [" ".join(map(word, part.tolist())) for part in np.split(ids, np.cumsum(sizes)[:-1])]


def write_corpus(path: Path, lengths: Lengths, vocabulary: int, *, seed: int = 0) -> Path:
    """Write one text a document, with blank lines between them."""
    path.write_text("\n\n".join(texts(lengths, vocabulary, seed=seed)) + "\n", encoding="utf-8")
    return path


def write_tokenizer(folder: Path, vocabulary: int) -> Path:
    """Write a WordPiece tokenizer, each entry a word, as Hugging Face's libraries and maskwright read it."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    entries = {entry: id for id, entry in enumerate((*SPECIAL, *map(word, range(len(SPECIAL), vocabulary))))}
    tokenizer = Tokenizer(models.WordPiece(entries, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens(list(SPECIAL))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").write_text("\n".join(entries) + "\n", encoding="utf-8")
    config = {"tokenizer_class": "BertTokenizerFast", "do_lower_case": True, "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def write_prose(path: Path, megabytes: float, *, seed: int = 0) -> Path:
    """Write documents of sentences of made words that a tokenizer has to split."""
    generator = np.random.default_rng([seed, 4])
    words = [
        "".join(generator.choice(list(_LETTERS[:12] * 2 + _LETTERS), generator.integers(2, 10))) for _ in range(20_000)
    ]
    bounds = np.cumsum(1 / (np.arange(len(words)) + 3.7))
    bounds /= bounds[-1]
    with open(path, "w", encoding="utf-8") as file:
        while file.tell() < 1e6 * megabytes:
            sampled = np.searchsorted(bounds, generator.random((int(generator.integers(2, 30)), 14)))
            sentences = [" ".join(words[id] for id in line).capitalize() + "." for line in sampled]
            file.write("\n".join(sentences) + "\n\n")
    return path


def write_labeled(path: Path, count: int, vocabulary: int, *, seed: int = 0) -> Path:
    """Write a CSV file with columns text and label, texts as long as SST-2's training phrases (median 13 tokens)."""
    generator = np.random.default_rng([seed, 5])
    sizes = np.clip(np.rint(np.exp(generator.normal(np.log(13.0), 0.65, count))), 3, 66).astype(np.int64)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("text", "label"))
        for text, label in zip(texts(sizes + 2, vocabulary, seed=seed), generator.integers(0, 2, count), strict=True):
            writer.writerow((text, f"class{label}"))
    return path
