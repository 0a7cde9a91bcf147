"""Speed of maskwright against other libraries, other settings and other revisions of itself.

    python -m benchmarks train                      one suite; `--list` says which there are
    python -m benchmarks train --cases natural      one case
    python -m benchmarks train --against v0.1.0     beside another revision of this repository
    python -m benchmarks train --quick              toy sizes: shows that it works, measures nothing

A suite has cases (a model and a kind of text), a case has contenders. Rules of all suites:

- Each contender runs in a process of its own; the contenders of a case run in turns, and the others are stopped
  meanwhile. Tables show medians and quartiles over the rounds, and ratios of the same rounds.
- Contenders of maskwright call the public functions that users call (`pretrain`, `load`, `finetune`).
- Peers get no handicap: fused AdamW, PyTorch's attention, padding to the longest text of a batch.
- Tokens are real tokens. Padding is work, not throughput.
"""
