"""Hard negatives for reranking: documents near a query that are not its relevant one, by sentence-transformers.

They are kept in the cache directory, so that a repeated command has the same ones and embeds nothing.
"""

import contextlib
import io
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from maskwright.checkpoints.checkpoint import Checkpoint
from maskwright.checkpoints.quiet import quiet
from maskwright.core.errors import DataError
from maskwright.core.extras import require
from maskwright.core.spec import fingerprint
from maskwright.core.storage.files import cache_folder, checksum, read_json, write_json
from maskwright.core.text.amounts import pluralize
from maskwright.finetuning.examples import ExampleFile, TextExample
from maskwright.finetuning.published.benchmarks import Split
from maskwright.machine.devices import choose_device
from maskwright.reporting.reporter import Reporter
from maskwright.training.ranks.distributed import on_rank_zero

NEGATIVES = 5
"""For each training query (sentence-transformers: training_gooaq_bce.py)."""
CANDIDATES = 20
"""For each query of another part: those that the model before training ranks first."""
MARGIN = 0.05
"""In training, a negative's similarity is at most (1 - MARGIN) times that of the relevant document: nearer ones are
often relevant too (sentence-transformers: training_gooaq_bce.py)."""


@dataclass(frozen=True, slots=True)
class NegativeMiner:
    """Mines negatives by the vectors of the model before training: its own pooling, else the mean."""

    existing: Checkpoint
    device: str
    reporter: Reporter

    def add_negatives(self, part: Split, file: ExampleFile[TextExample]) -> ExampleFile[TextExample]:
        """Return the pairs, labeled 1, and for each query its nearest other documents of the file, labeled 0."""
        pairs = list(dict.fromkeys(example.texts for example in file.examples))
        limits: dict[str, Any] = {"num_negatives": NEGATIVES, "relative_margin": MARGIN}
        if part != "train":
            limits = {"num_negatives": CANDIDATES, "relative_margin": None}
        rows = on_rank_zero(lambda: self._labeled_pairs(pairs, limits))
        if all(label for *_, label in rows):
            raise DataError(
                f"{file.name} has {pluralize(len(pairs), 'pair')} and no other document that is far enough from the "
                "relevant ones to be a negative",
                hint="Give more pairs, or negatives: triplets, or a column of 1 and 0, `--label COLUMN`.",
            )
        self.reporter.message(
            part, f"{len(rows) - len(pairs):,} negatives mined for {len(pairs):,} pairs by {self.existing.name}"
        )
        examples = tuple(
            TextExample(key=str(number), texts=(query, document), label=float(label))
            for number, (query, document, label) in enumerate(rows, start=1)
        )
        return replace(file, examples=examples)

    def _labeled_pairs(self, pairs: list[tuple[str, ...]], limits: Mapping[str, Any]) -> list[list[Any]]:
        """Return [query, document, label] from the cache directory, or mined."""
        require("mining negatives for reranking", "embedding", "sentence_transformers", "datasets")
        existing, modules = self.existing, self.existing.modules
        dense = () if modules.dense is None else modules.dense.parameters()
        model = [existing.fingerprint, existing.tokenizer.fingerprint, existing.max_length, repr(modules)]
        model += [checksum(each.detach().cpu().numpy().tobytes()) for each in dense]
        key = fingerprint([version("sentence-transformers"), model, limits, pairs])
        path = cache_folder() / "negatives" / f"{key}.json"
        if path.is_file():
            rows: list[list[Any]] = read_json(path)
            return rows
        self.reporter.stage("mining negatives (pairs)", 0, len(pairs))
        rows = self._mine(pairs, limits)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, rows)
        return rows

    def _mine(self, pairs: list[tuple[str, ...]], limits: Mapping[str, Any]) -> list[list[Any]]:
        from datasets import Dataset
        from sentence_transformers.util import mine_hard_negatives

        existing, modules = self.existing, self.existing.modules
        modules.check(existing.name)
        queries, documents = zip(*pairs, strict=True)
        with quiet(), tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            model = existing.to_sentence_transformer(Path(folder), modules).to(choose_device(self.device))
            mined = mine_hard_negatives(
                Dataset.from_dict({"query": queries, "document": documents}),
                model,
                **limits,
                output_format="labeled-pair",
                verbose=False,
            )
        return [[row["query"], row["document"], row["label"]] for row in mined]
