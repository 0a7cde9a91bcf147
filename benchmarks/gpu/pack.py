"""`python -m benchmarks.gpu.pack`: wheels, text and labeled sets for a machine without network.

FOLDER gets `wheels/`, `data/corpus/en_10m.jsonl.zst`, about 10 million words of DATA's `corpus/en_modern.jsonl.zst` and
`corpus/en_novels.jsonl.gz`, and the labeled sets of the English jobs. Pack on the kind of machine that the jobs run on,
since wheels are for one platform. Training files are cut to their first 8,000 examples, so samples drawn from them are
not those of DATA.
"""

import argparse
import hashlib
import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.gpu.jobs import GLUE
from benchmarks.runner import ROOT
from maskwright.data.files import decompressed, reading

# Distributions that a machine with PyTorch and transformers lacks or has too old; constraints.txt has their versions.
WHEELS = (
    *("pydantic", "pydantic-core", "annotated-types", "typing-inspection", "sentencex", "rjieba", "rensa"),
    *("pyahocorasick", "zstandard", "nltk", "defusedxml"),
)
SETS = ("blimp", "synonyms_en_oewn", *(task.partition("=")[2] for task in GLUE))
WORDS = 9_950_000
TRAINING_LINES = 8_001
"""Lines kept of a training file: a header and 8,000 examples."""
MAX_BYTES = 64 << 20
"""Most that can be carried."""


def pack_wheels(to: Path, python: str) -> None:
    """Build the project's wheel and download those of `WHEELS` for a version of Python."""
    shutil.rmtree(to, ignore_errors=True)  # Two versions of a wheel could not be installed.
    pip = (sys.executable, "-m", "pip", "--quiet")
    subprocess.run((*pip, "wheel", "--no-deps", "--wheel-dir", str(to), str(ROOT)), check=True)
    binary = ("--no-deps", "--only-binary", ":all:", "--python-version", python)
    pins = ("--constraint", str(ROOT / "constraints.txt"))
    subprocess.run((*pip, "download", *binary, *pins, "--dest", str(to), *WHEELS), check=True)


def pack_data(data: Path, to: Path) -> None:
    """Write the corpus and the labeled sets."""
    import zstandard

    target = to / "corpus/en_10m.jsonl.zst"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(zstandard.ZstdCompressor(level=19).compress(b"".join(_documents(data / "corpus"))))
    for folder in SETS:
        sources = [path for path in sorted((data / folder).glob("*")) if path.is_file()]
        if not sources:
            raise SystemExit(f"{data} has no files in {folder}/; --data needs {', '.join(SETS)}")
        (to / folder).mkdir(parents=True, exist_ok=True)
        for source in sources:
            with source.open("rb") as file:
                kept = itertools.islice(file, TRAINING_LINES if source.name == "train.tsv" else None)
                (to / folder / source.name).write_bytes(b"".join(kept))


def _documents(corpus: Path) -> Iterator[bytes]:
    """Yield half of the modern documents, by their hash, then novels, until `WORDS` words are reached."""
    words = 0
    for name in ("en_modern.jsonl.zst", "en_novels.jsonl.gz"):
        with reading(corpus / name) as file:
            for line in decompressed(file, corpus / name):
                if name.startswith("en_modern") and hashlib.sha256(line).digest()[0] >= 128:
                    continue
                words += len(json.loads(line)["text"].split())
                if words > WORDS:
                    return
                yield line


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack a folder and return the exit code, 1 if it is too large to be carried."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.pack", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="corpus/ and labeled sets")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--python", default="3.12", help="version on the machine (default: 3.12)")
    options = parser.parse_args(arguments)
    pack_data(options.data, options.to / "data")
    pack_wheels(options.to / "wheels", options.python)
    total = sum(path.stat().st_size for path in options.to.rglob("*") if path.is_file())
    print(f"{options.to}: {total / 2**20:.1f} of at most {MAX_BYTES >> 20} MiB")
    return int(total > MAX_BYTES)


if __name__ == "__main__":
    sys.exit(main())
