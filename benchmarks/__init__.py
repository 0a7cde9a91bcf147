"""How fast maskwright is, against what people would use today and against the machine itself.

    python -m benchmarks                 every row that this machine can measure, then the page docs/performance.md
    python -m benchmarks natural masks   some rows
    python -m benchmarks --list          what the rows are
    python -m benchmarks --quick         tiny settings: shows that everything works, measures nothing
    python -m benchmarks render          the page's tables and plots, from the results that lie in benchmarks/results

A row is one module with a function `run(settings) -> Report`; `catalog.py` lists them. Rules that all rows keep:

- Both sides compute the same: the weights are written once by `save_model` and loaded by both, the tokens, masks and
  targets are those of one batch, and the difference of their losses (dropout off) is printed beside every ratio.
- Both sides run in one process, in turns (`timing.interleave`): the same threads, the same allocator, the same noise.
- The peer gets no handicap: fused AdamW, PyTorch's fused attention, padding to the longest text of a batch.
- Tokens are real tokens. Padding is work, not throughput.
"""
