"""`--task embedding`: sentence embeddings through sentence-transformers' trainer."""
