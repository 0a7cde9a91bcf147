"""Peak memory of deduplication with one file of hashes and with several: `python -m benchmarks.deduplication FILE ...`

The hashes are those of real text. Each further copy of the text has other hashes that repeat in the same way.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.data.cleaning import deduplication
from maskwright.data.cleaning.block import CleanedBlock, Counts, clean_block, on_bad_line
from maskwright.data.cleaning.text import Cleaning
from maskwright.data.sources.arguments import resolve_sources
from maskwright.data.sources.readers import raw_blocks

_FIELDS = ("paragraph_hashes", "document_hashes", "lengths", "band_hashes")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of peak memory by amount of text and number of files of hashes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deduplication", description=__doc__)
    parser.add_argument("corpus", nargs="+", help="text files, as for pretrain")
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 10], help="how many times the text")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 16], help="numbers of files of hashes")
    parser.add_argument("--near-duplicates", action="store_true", help="look for near duplicates too")
    parser.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        _measure(Path(options.corpus[0]), *options.one)
        return
    with tempfile.TemporaryDirectory(prefix="maskwright-benchmarks-") as scratch:
        folder = Path(scratch)
        size = _hash(options.corpus, Cleaning(near_duplicates=options.near_duplicates), folder)
        print("| clean text, MB | files of hashes | repeats | peak memory above the start, MB |\n|---:|---:|---:|---:|")
        for copies in options.copies:
            for partitions in options.partitions:
                command = [sys.executable, "-m", "benchmarks.deduplication", scratch, "--one"]
                command += [str(copies), str(partitions)]
                row = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
                print(f"| {copies * size / 1e6:,.0f} | {partitions} | {row} |", flush=True)


def _hash(corpus: Sequence[str], cleaning: Cleaning, folder: Path) -> int:
    """Clean a corpus and save the hashes of its blocks; return the bytes of text."""
    sources, size = resolve_sources(corpus), 0
    reading = [on_bad_line(Counts(), cleaning) for _ in sources]
    for number, block in enumerate(raw_blocks(sources, cleaning.text_documents, reading)):
        cleaned = clean_block((number, block), cleaning=cleaning, folder=folder)
        np.savez(folder / f"hashes-{number:05d}.npz", **{name: getattr(cleaned, name) for name in _FIELDS})
        text = folder / f"{number:08d}.txt"
        size += text.stat().st_size
        text.unlink()
    return size


def _measure(folder: Path, copies: int, partitions: int) -> None:
    """Find the repeats in some copies of the hashes, in this process; print their number and the memory."""
    deduplication.PARTITION_BYTES = 1
    with tempfile.TemporaryDirectory(dir=folder) as work:
        start = _peak()
        duplicates = deduplication.Duplicates(Path(work), partitions - 1)
        for copy in range(copies):
            for path in sorted(folder.glob("hashes-*.npz")):
                duplicates.add(_copied(path, np.uint64(copy)))
        duplicates.find(1)
        peak = _peak()
        num_duplicates = sum(int(flags.sum()) for flags in duplicates.flags.values())
    print(f"{num_duplicates:,} | {(peak - start) / 1e6:,.0f}")


def _copied(path: Path, copy: np.uint64) -> CleanedBlock:
    def other(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return np.where(hashes == 0, hashes, hashes ^ (copy << np.uint64(40)))

    with np.load(path) as arrays:
        block = CleanedBlock(source=0, bytes_read=0, counts=Counts(), **arrays)
    return replace(
        block,
        paragraph_hashes=other(block.paragraph_hashes),
        document_hashes=other(block.document_hashes),
        band_hashes=other(block.band_hashes),
    )


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
