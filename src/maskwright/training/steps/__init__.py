"""From tokenized text to weight updates: order, batches, model with heads, step, loop, evaluation."""
