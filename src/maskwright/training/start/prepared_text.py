"""`maskwright.prepare`: clean and tokenize a corpus ahead of a run, on another machine or a cluster."""

from collections.abc import Sequence
from pathlib import Path

from maskwright.core.spec import override, parse_overrides
from maskwright.core.storage.files import cache_folder
from maskwright.core.storage.object_stores import is_url
from maskwright.core.text.amounts import pluralize, short_count, size_in_bytes
from maskwright.data.cleaning.data_card import remarks
from maskwright.data.cleaning.store import clean_corpus
from maskwright.data.cleaning.text import Cleaning
from maskwright.data.engines import Engine, check_workers, use_engine
from maskwright.data.prepared import PreparedText, check_target, write_prepared
from maskwright.data.shards.tokenize import tokenize_corpus
from maskwright.data.sources.arguments import resolve_sources
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import train_tokenizer
from maskwright.data.words.annotator import check_words
from maskwright.recipes import DEFAULT_RECIPE
from maskwright.recipes.catalog import resolve
from maskwright.recipes.recipe import Recipe
from maskwright.reporting.console import ConsoleReporter
from maskwright.reporting.reporter import Reporter


def prepare(
    corpus: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    recipe: str | Recipe = DEFAULT_RECIPE,
    set: Sequence[str] = (),
    seed: int = 0,
    tokenizer: str | Path | None = None,
    clean: Sequence[str] = (),
    workers: int | None = None,
    engine: Engine | None = None,
    cache: str | Path | None = None,
    reporter: Reporter | None = None,
) -> PreparedText:
    """Clean and tokenize a corpus. `pretrain(out, ...)` then trains on it; neither needs a GPU or the other's machine.

    The same call resumes: finished stages are kept.

    Args:
        corpus, set, tokenizer, clean, workers, engine, reporter: As for `pretrain`.
        out: Where to write the prepared text, a directory or a URL; it then is a corpus of `maskwright pretrain`. On a
            cluster the directory must be on a file system that all nodes share. In Python: for a URL, `cache` must be.
        recipe: Recipe whose tokenizer (with its vocabulary size, `tokenizer.vocab_size` in `set`) and words are used.
        seed: Random seed of the tokenizer's sample.
        cache: With a URL: where the text is prepared before it is copied; None for the user's cache directory.

    Raises:
        MaskwrightError: If an argument is invalid, or the text cannot be read or written.
    """
    check_workers(workers)
    chosen = override(recipe if isinstance(recipe, Recipe) else resolve(str(recipe)), parse_overrides(set))
    cleaning = override(Cleaning(), parse_overrides(clean))
    check_words(chosen.words)
    existing = None if tokenizer is None else Tokenizer.from_folder(Path(tokenizer).expanduser())
    sources = [corpus] if isinstance(corpus, str | Path) else list(corpus)
    target = str(out) if is_url(str(out)) else Path(out).expanduser()
    folder = target if isinstance(target, Path) else Path(cache or cache_folder()).expanduser()
    check_target(target)
    with use_engine(engine), reporter or ConsoleReporter() as reporter:
        resolve_sources(sources, cache=folder, progress=reporter.stage)  # `clean_corpus` would open prepared text.
        cleaned = clean_corpus(sources, cleaning=cleaning, cache=folder, workers=workers, progress=reporter.stage)
        for remark in remarks(cleaned.card):
            reporter.message("corpus", remark)
        used = existing or train_tokenizer(chosen.tokenizer, cleaned, seed=seed, cache=folder, progress=reporter.stage)
        tokens = tokenize_corpus(
            cleaned, used, words=chosen.words, cache=folder, workers=workers, progress=reporter.stage
        )
        described = {
            "names": list(cleaned.source_names),
            "weights": list(cleaned.source_weights),
            "cleaning": cleaning.model_dump(mode="json"),
            "tokenizer": None if existing else chosen.tokenizer.model_dump(mode="json"),
        }
        prepared = write_prepared(target, cleaned.folder, tokens.folder, described, reporter.stage)
        reporter.message(
            "prepared",
            f"{size_in_bytes(cleaned.num_bytes)} of clean text, {pluralize(cleaned.num_documents, 'document')}, "
            f"{short_count(tokens.num_tokens)} tokens, {used.kind} vocabulary of "
            f"{used.special_tokens.vocab_size:,} entries; digest {prepared.digest}",
        )
    return prepared
