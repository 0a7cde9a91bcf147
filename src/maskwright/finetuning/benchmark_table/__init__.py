"""The benchmarks, as rows of data.

Every number has its source in the row. "BERT" is Devlin et al. 2019, section 4 and appendix A.3: three passes in
batches of 32, the best rate of {5, 4, 3, 2}e-5 on the development set. Where a row has one rate of that grid without
another source, it is 3e-5, in its middle; the length of 128 is that of google-research/bert's run_classifier.py and
README. No source exists for what a row calls "as BERT".
"""

from types import MappingProxyType

from maskwright.finetuning.benchmark import Benchmark
from maskwright.finetuning.benchmark_table import chinese, english, glue

ROWS: tuple[Benchmark, ...] = (*glue.ROWS, *english.ROWS, *chinese.ROWS)
"""All rows, group by group."""

ALIASES = MappingProxyType(
    {
        "squad": "squad-1.1",
        "squad-v1": "squad-1.1",
        "squad-v1.1": "squad-1.1",
        "squad-2": "squad-2.0",
        "squad-v2": "squad-2.0",
        "squad-v2.0": "squad-2.0",
        "mnli-m": "mnli",
        "mnli-matched": "mnli",
        "mnli-mismatched": "mnli-mm",
        "conll": "conll-2003",
        "cmrc": "cmrc2018",
        "weibo": "weibo-ner",
        "chinese-sts-b": "sts-b-zh",
    }
)
"""Other names of benchmarks."""
