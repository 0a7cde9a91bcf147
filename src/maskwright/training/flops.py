"""Training operations of a step, by the encoder's one formula and the heads' shapes."""
