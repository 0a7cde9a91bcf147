"""A corpus and an encoder with which a study of several runs takes a second."""

from pathlib import Path

TOY = (
    *("encoder.hidden_size=16", "encoder.num_heads=2", "encoder.num_layers=1", "encoder.intermediate_size=32"),
    *("tokenizer.vocab_size=300", "training.batch_sequences=8"),
    'training.phases=[{"share": 1.0, "max_length": 32}]',
)


def write_corpus(path: Path) -> Path:
    text = "The {age} captain number {n} sees {m} ships of {men} men."
    texts = [
        " ".join(text.format(age="old" if n % 3 else "new", n=n, m=m, men=n + m) for m in range(4 + n % 5))
        for n in range(160)
    ]
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return path
