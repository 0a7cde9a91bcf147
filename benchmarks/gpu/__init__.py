"""Jobs for a GPU that is available for minutes only.

    python -m benchmarks.gpu pairs --corpus TEXT --data DATA --out OUT --minutes 8
    python -m benchmarks.gpu factors+together tuned ...    jobs follow each other; those joined by "+" run side by side
    python -m benchmarks.gpu --report OUT/results.jsonl    tables as Markdown, and the next job

A job of `jobs.JOBS` is a list of cases, planned for at most nine minutes of an H100; the jobs are in the order of the
queue. Each case runs in a process of its own and appends lines of JSON to OUT/results.jsonl, one for each part as it is
done. A case whose last part is there is skipped, so the same command continues; to continue on another machine, put
results.jsonl in its OUT. When the minutes are over, running cases are killed. A case that needs the run of another one
waits for it. Cases of `speed`, a job to run alone, prepare side by side, then wait until nothing else computes for
their timed rounds. `--toy` runs every case at toy size on a CPU, as the tests do; that does not cover kernels, graphs
and precision of a GPU, nor the minutes that a job needs there.

DATA contains `blimp/`, the GLUE folders `SST-2`, `MRPC`, `STS-B`, `CoLA` and `RTE` in `glue/`, `wnut17_ner/` and
`synonyms_en_oewn/`; for `chinese`, a job to run with Chinese text alone, `chnsenticorp/`, `afqmc/`, `weibo_ner/` and
`synonyms_zh_cilin/`. Runs with the same tokenizer share one, which is made first, with the tokenized text.

A machine without network gets the checkout and a folder that is made here, of at most 64 MiB:

    python -m benchmarks.gpu.pack --data DATA --to .gpu

and there, in the checkout, with Python 3.12, PyTorch and transformers:

    python3 -m pip install -q --no-index --no-deps --target /tmp/site .gpu/wheels/*.whl
    export PYTHONPATH=$PWD/src:/tmp/site HF_HUB_OFFLINE=1
    export MASKWRIGHT_CACHE=/tmp/cache TORCHINDUCTOR_CACHE_DIR=/tmp/inductor
    python3 -m benchmarks.gpu JOBS --corpus .gpu/data/corpus/en_10m.jsonl.zst --data .gpu/data \\
        --out OUT --scratch /tmp/scratch --minutes 8 --workers 12

Keep OUT/results.jsonl: the next call continues from it.
"""
